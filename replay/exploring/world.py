"""The world in which a capture is explored: stream, cluster, registries, and the owner of each shard. Pure."""

from typing import Any, Final

import msgspec

from consumer.observation import LastEvent
from replay.exploring.loop import VirtualLoop
from replay.exploring.scheduler import Scheduler
from replay.exploring.story import Ending, Plan, Story, Told, ending_of
from replay.exploring.stream import Durable
from replay.exploring.worker import Process
from replay.registry import MemoryRegistry
from shared.errors import ConflictError
from shared.objects import ObjectKey
from shared.subjects import shard_of

ZOMBIE_S: Final = 20.0  # how long an owner that lost its shard goes on
CALM_AFTER_S: Final = 15.0  # the last event
REST_S_MAX: Final = 3_000.0
_STEP_S: Final = 5.0


class RestlessError(AssertionError):
    """The workers do not come to an end, though nothing strikes any more."""


class Cluster:
    """What the API server answers: each object as its last event showed it, and our id where it was written since."""

    def __init__(self, story: Story) -> None:
        self._target = story.header.plan_settings.target
        self._bodies: dict[ObjectKey, bytes | None] = {}
        self._written: dict[ObjectKey, list[dict[str, Any]]] = {}

    def show(self, told: Told) -> None:
        self._bodies[told.key] = None if told.ends else told.body
        self._written.pop(told.key, None)

    def get(self, key: ObjectKey) -> Any | None:
        body = self._bodies.get(key)
        if body is None:
            return None
        try:
            raw = msgspec.json.decode(body)
            metadata = raw["metadata"]
        except (msgspec.DecodeError, KeyError, TypeError):
            return None  # an event that does not decode
        for operation in self._written.get(key, []):
            _add(metadata, operation)
        return raw

    def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        raw = self.get(key)
        if raw is None:
            raise ConflictError(f"{key} is gone")
        metadata = raw["metadata"]
        present = {"/metadata/uid": metadata["uid"], "/metadata/resourceVersion": metadata["resourceVersion"]}
        for operation in operations:
            if operation["op"] == "test" and present[operation["path"]] != operation["value"]:
                raise ConflictError(f"the test of {operation['path']} failed")
        self._written.setdefault(key, []).append(operations[-1])


def _add(metadata: dict[str, Any], operation: dict[str, Any]) -> None:
    """Carry out the last operation of `writeback.patch_operations`."""
    _, _, field, *escaped = operation["path"].split("/")
    values = metadata.setdefault(field, {}) or {}
    if escaped:
        values[escaped[0].replace("~1", "/").replace("~0", "~")] = operation["value"]
    else:
        values = operation["value"]
    metadata[field] = values


class World:
    """One exploration. `owners` are the processes by shard, None between two lives. `dead`: the dead letters."""

    def __init__(self, story: Story, plan: Plan, scheduler: Scheduler, workers: int) -> None:
        self.story = story
        self.scheduler = scheduler
        self.workers = workers
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what it lacks is never called
        self.cluster = Cluster(story)
        self.dead: dict[ObjectKey, str] = {}
        self.durables = [Durable(self.loop, scheduler) for _ in range(workers)]
        self._plan = plan
        self._registries: dict[str, MemoryRegistry] = {}
        self._last: dict[ObjectKey, Told] = {}
        self._waits: set[int] = set()  # sequences of what can only be tried again
        for facts in story.facts:
            self.registry(facts.registry).seed(facts)
        self.owners: list[Process | None] = [None] * workers
        with self.loop.running():
            for shard in range(workers):
                self._start(shard)

    def now(self) -> str:
        minutes, seconds = divmod(self.loop.time(), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-12-01T{int(hours):02}:{int(minutes):02}:{seconds:06.3f}Z"

    def registry(self, name: str) -> MemoryRegistry:
        """Return the registry of that name."""
        if name not in self._registries:
            registry = self._registries[name] = MemoryRegistry()
            for version, model in self._plan.assumed.get(name, {}).items():
                registry.assume(version, model)
        return self._registries[name]

    def last(self, key: ObjectKey) -> LastEvent | None:
        """Return what the stream says last of an object."""
        told = self._last.get(key)
        return None if told is None or told.seen is None else LastEvent(told.seen, told.sequence)

    # what happens

    def live(self, told: list[Told]) -> Ending:
        """Publish everything, let happen what happens, and return what there is in the end. Raises RestlessError."""
        for message in told:
            due_s = message.at_s * self.scheduler.pace
            if due_s > self.loop.time():
                self.loop.run_for(due_s - self.loop.time())
            with self.loop.running():
                self._publish(message)
        self.loop.run_for(CALM_AFTER_S)
        self.scheduler.calm = True
        self._rest()
        return ending_of(self._registries, self.dead, self._plan.unsaid)

    def delivered(self, process: Process, told: Told) -> None:
        """Let something happen to the owner that has just been given a message."""
        for fault, befall in (
            ("worker killed", self.died),
            ("shard taken over", self._take_over),
            ("worker reconnected", self._reconnect),
        ):
            if self.scheduler.fault(fault, told.name):
                delay_s = self.scheduler.choice(f"how soon {fault}", (0.005, 0.05, 0.5, 3.0))
                self.loop.call_later(self.scheduler.draw(f"when {fault}") * delay_s, befall, process)

    def died(self, process: Process) -> None:
        """End a process at its present await; another one takes over from the ack floor, with nothing in memory."""
        if process.dead:
            return
        process.die()
        if self.owners[process.shard] is process:
            self.owners[process.shard] = None
            process.durable.leave()
            pause_s = self.scheduler.between(0.1, 3.0, f"next owner of {process.shard}")
            self.loop.call_later(pause_s, self._start, process.shard)

    def close(self) -> None:
        """End everything."""
        self.loop.cancel_all()

    def _publish(self, told: Told) -> None:
        copies = [told]
        if self.scheduler.fault("published twice", told.name):
            copies.append(msgspec.structs.replace(told, sequence=told.sequence + 1, name=f"{told.name}, again"))
        shard = shard_of(told.key, self.workers)
        for each in copies:
            self._last[each.key] = each
            self.cluster.show(each)
            if each.uid in self._plan.left_out:
                self._waits.add(each.sequence)
            self.durables[shard].add(each)

    def _take_over(self, process: Process) -> None:
        """Give a shard to another process; the old one goes on for a while without it."""
        if process.dead or self.owners[process.shard] is not process:
            return
        process.lose()
        self.owners[process.shard] = None
        self._start(process.shard)
        self.loop.call_later(ZOMBIE_S, process.die)

    def _reconnect(self, process: Process) -> None:
        """Lose the broker for a moment: everything above the ack floor comes anew, memory stays."""
        if not process.dead and self.owners[process.shard] is process:
            process.pull()

    def _start(self, shard: int) -> None:
        if self.owners[shard] is None:
            process = Process(self, shard)
            self.owners[shard] = process
            process.pull()

    # the end

    def _rest(self) -> None:
        end_s = self.loop.time() + REST_S_MAX
        while why := self._stirring():
            if self.loop.time() > end_s:
                raise RestlessError(f"it does not come to rest: {why}")
            self.loop.run_for(_STEP_S)

    def _stirring(self) -> str:
        """Return what still goes on, "" when nothing does. Looks that are due write ids, and no record."""
        if None in self.owners:
            return "a shard has no owner"
        for owner, durable in zip(self.owners, self.durables, strict=True):
            if durable.waiting or durable.pending.keys() - self._waits:
                return "messages are not acknowledged"
            if owner is not None and owner.under_way:
                return "requests are under way"
        return ""
