"""Decide a capture again: the consumer's own core over a registry in memory, one event after the other. Pure.

    planner = Planner(header)
    for line in capture:
        match line:
            case Facts(): planner.facts(line)
            case Captured(): steps = planner.decide(line)    # the event's step is the last one
    steps = planner.end()

Handler, reconciler and actor are the consumer's; what they read and write is `surroundings.py` and `registry.py`. No
socket, no clock but the events' own times, and nothing takes time: each event is done before the next one, also where a
consumer that is behind would pass it over. What would be tried again without anything new (a registry that no Service
leads to) waits for the object's next event. The looks of a person or the sweep are in no capture; those that the
consumer asks of itself, because an id is due, come at their time.
"""

import heapq
from datetime import UTC, datetime
from itertools import count
from typing import Final

from msgspec.structs import replace

from consumer.delivery.work import Work, look_later, passed_over
from consumer.freshness import Order, compare
from consumer.handle import Handler, Hooks, Sources
from consumer.observation import Observation, Wanted, observe, want
from consumer.reconcile import Reconciler
from consumer.verdict import Bury, Retry
from replay.capture import Captured, Facts, Header
from replay.instant import InstantLoop
from replay.moments import unix_s
from replay.noting import Notes, NotingActor
from replay.registry import MemoryRegistry
from replay.steps import Step
from replay.surroundings import Cluster, Echo, Registries
from shared.errors import BadEventError
from shared.events import EventType
from shared.objects import ObjectKey

LOOKS_AFTER_END_S: Final = 60.0  # the longest pause after which an id is looked at again
_CHANCE: Final = 0.5


class _Message:
    """An event as if the broker had delivered it, once. Nobody waits for its end, and nobody reads its headers."""

    num_delivered = 1

    def __init__(self, line: Captured) -> None:
        self.subject = line.position.subject
        self.headers: dict[str, str] = {}
        self.provenance: dict[str, str] = {}
        self.body = line.data
        self.sequence = line.position.seq

    async def ack(self) -> None:
        pass

    async def in_progress(self) -> None:
        pass

    async def terminate(self, reason: str) -> None:
        pass


class Planner:
    """Decides one capture, in its order. `strict`: models and versions that no facts name do not exist."""

    def __init__(self, header: Header, *, strict: bool = False) -> None:
        settings = header.plan_settings
        self.registries: dict[str, MemoryRegistry] = {}
        self._header = header
        self.settings = settings
        self._strict = strict
        self._loop = InstantLoop()  # type: ignore[abstract]  # what it lacks is never called
        self._notes = Notes(self._loop.time)
        self._cluster = Cluster(settings.target, Echo.in_capture(header))
        self._places = Registries(header.deciding, settings, self.registry, self._loop.time)
        actor = NotingActor(self._cluster, settings, _allow, self._notes.wrote_back, self._notes.told)
        actor.notes = self._notes
        self._reconciler = Reconciler(actor, self._places, settings, self._look_again)
        hooks = Hooks(lambda: _CHANCE, self._now, self._notes.came, self._notes.told)
        self._handler = Handler(self._reconciler, Sources(self._cluster, actor.live), self._cluster, hooks)
        self._looks: list[tuple[float, int, ObjectKey]] = []
        self._ticket = count()
        self._waiting: dict[str, Observation] = {}  # what could not be done, by uid

    @property
    def dead_letters(self) -> dict[ObjectKey, str]:
        """The objects that a person should see by now, and why."""
        return dict(self._cluster.dead)

    @property
    def assuming(self) -> bool:
        """Whether models or versions were taken to exist because no facts tell of any."""
        return any(each.assuming for each in self.registries.values())

    def shown(self, key: ObjectKey) -> Observation | None:
        """Return the newest state of an object, its id as it is called here; None before its first event."""
        last = self._cluster.last_shown(key)
        return None if last is None else last.seen

    def registry(self, name: str) -> MemoryRegistry:
        """Return the registry of that name."""
        if name not in self.registries:
            self.registries[name] = MemoryRegistry(strict=self._strict, on_write=self._notes.wrote)
        return self.registries[name]

    def facts(self, facts: Facts) -> None:
        """Take in what a registry held. What it held at the end is what is to come out: that is passed over."""
        if facts.at == "start":
            self.registry(facts.registry).seed(facts)

    def decide(self, line: Captured) -> tuple[Step, ...]:
        """Return what is decided up to and with this event, whose step is the last one; before it, of looks."""
        time_s = unix_s(line.event.time) or unix_s(line.position.time)
        steps = self._look_until(time_s) if time_s is not None else ()
        self._loop.now_s = max(self._loop.now_s, time_s or 0.0)
        return (*steps, self._loop.run(self._event(line)))

    async def step(self, line: Captured) -> Step:
        """Return the step of this event alone."""
        return self.decide(line)[-1]

    def end(self) -> tuple[Step, ...]:
        """Return what the looks find that are due after the last event."""
        return self._look_until(self._loop.now_s + LOOKS_AFTER_END_S)

    async def _event(self, line: Captured) -> Step:
        self._notes.clear()
        work = received(line, self._header.cluster_id)
        work.seen = self._shown(work.seen, line)
        reason = await self._handle(work)
        labels = self._labels(work.seen)
        return Step(
            seq=line.position.seq,
            time=line.event.time,
            key=line.event.key,
            uid=line.event.uid,
            type=line.event.type,
            resource_version=line.event.resource_version,
            initial=line.initial,
            model=(labels.model or "") if labels is not None else "",
            version=labels.version if labels is not None else "",
            registry=self._notes.registry,
            result=self._notes.result,
            reason=reason,
            taken=tuple(self._notes.taken),
            notices=tuple(self._notes.notices),
        )

    def _labels(self, seen: Observation | None) -> Wanted | None:
        """Return what the object's labels say, from the reconciler's memory where that has it."""
        if seen is None:
            return None
        known = self._reconciler.memory.get(seen.uid)
        if known is not None and known.freshness == seen.freshness and known.digest == seen.digest:
            return known.inputs.wanted
        return want(seen, self.settings.prefix)

    async def _look(self, key: ObjectKey, last: Observation, sequence: int) -> Step | None:
        """Look at an object whose id is due; return what came of it, None when that is nothing."""
        self._notes.clear()
        await self._handler.handle(look_later(key))
        if not self._notes.is_news:
            return None
        return Step(
            seq=sequence,
            time=self._now(),
            key=key,
            uid=last.uid,
            type=EventType.UPDATED,
            look=True,
            resource_version=last.freshness.resource_version,
            result=self._notes.result,
            taken=tuple(self._notes.taken),
            notices=tuple(self._notes.notices),
        )

    def _shown(self, seen: Observation | None, line: Captured) -> Observation | None:
        """Return what an event shows, with the id as it is called here, and with what was passed over before it."""
        if seen is None:
            return None
        known = self._reconciler.memory.get(seen.uid)
        seen = self._cluster.show(seen, line, known.record_id if known is not None else None)
        waiting = self._waiting.get(seen.uid)
        if waiting is None or compare(seen.freshness, waiting.freshness) is not Order.NEWER:
            return seen
        prefix = self.settings.prefix
        same = want(waiting, prefix).model == want(seen, prefix).model
        return replace(seen, passed=passed_over(waiting, prefix)) if same else seen

    async def _handle(self, work: Work) -> str:
        """Handle an event; return why it is among the dead letters, or must wait."""
        decision = await self._handler.handle(work)
        if work.seen is not None:
            if isinstance(decision, Retry):
                self._waiting[work.uid] = work.seen
            else:
                self._waiting.pop(work.uid, None)
        return decision.reason if isinstance(decision, Retry | Bury) else ""

    def _look_until(self, time_s: float) -> tuple[Step, ...]:
        """Do the looks that are due by then, each at its time."""
        steps = []
        while self._looks and self._looks[0][0] <= time_s:
            due_s, _, key = heapq.heappop(self._looks)
            last = self._cluster.last_shown(key)
            known = self._reconciler.memory.get(last.seen.uid) if last is not None else None
            if last is None or known is None or not known.due:
                continue
            self._loop.now_s = max(self._loop.now_s, due_s)
            step = self._loop.run(self._look(key, last.seen, last.sequence))
            if step is not None:
                steps.append(step)
        return tuple(steps)

    def _look_again(self, key: ObjectKey, delay_s: float) -> None:
        heapq.heappush(self._looks, (self._loop.now_s + delay_s, next(self._ticket), key))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._loop.now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def received(line: Captured, cluster_id: str) -> Work:
    """Return what `consumer.delivery.work.receive` makes of the message, without headers in between."""
    event, key, message = line.event, line.event.key, _Message(line)
    try:
        obj = line.obj
    except BadEventError as error:
        return Work(key, message, failure=error)
    if event.uid != obj.metadata.uid:
        return Work(key, message, failure=BadEventError(f"the event of {key} speaks of another object, {event.key}"))
    if event.cluster_id != cluster_id:
        return Work(key, message, failure=BadEventError(f"the event of {key} is from cluster id {event.cluster_id}"))
    fresh = event.type is EventType.CREATED and not event.synthetic
    return Work(key, message, observe(event, obj), creates_first=fresh)


def _allow(_key: ObjectKey) -> None:
    """Let everything be written: there is one owner."""
