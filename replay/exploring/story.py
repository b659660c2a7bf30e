"""What is explored: the events of a capture as messages, what its registries held, and what its plan comes to. Pure.

The plan is the sequential one of `planning.py`: every event done before the next, and nothing goes wrong. What a record
says in the end is compared in the words of `target_outcome.content`: no ids, times as there or not there, and nothing
of what rides along. Some more depends on which states a newer one replaced before their turn (`Unsaid`): above all
runtime and version of a record whose last state names none, since the registry can clear neither.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from consumer.freshness import Freshness, Order, compare
from consumer.observation import Observation, observe, want
from consumer.records import Record
from replay.capture import Captured, Facts, Header
from replay.files import Capture
from replay.moments import unix_s
from replay.planning import Planner
from replay.registry import MemoryRegistry
from replay.target.outcome import content
from shared import events
from shared.errors import BadEventError
from shared.events import EventType
from shared.objects import ObjectKey
from shared.subjects import Subjects

GAP_S_MAX: Final = 5.0  # of the time between two events: what comes later finds everything done
UNRECORDED_END: Final = "its end has no record that a late event could be held against"
RETURNED: Final = "it went back to a registry that it had left"
WAITS: Final = "it has an event that can only be tried again"
_AHEAD_OF_COPY: Final = 2  # sequences for each event: there may be a copy of it

Place = tuple[str, str, str]  # a record: the names of registry, serving environment, and its own


class Told(msgspec.Struct, frozen=True):
    """A message of the stream. `name` tells it apart in every part of the capture; `at_s`: after the first one.

    `seen`: what it shows, None where it does not decode. `ends`: it tells a deletion.
    """

    sequence: int
    name: str
    key: ObjectKey
    uid: str
    subject: str
    headers: dict[str, str]
    body: bytes
    at_s: float
    seen: Observation | None
    ends: bool


class Story(msgspec.Struct, frozen=True):
    """A capture, or a part of it: all of its facts `at: start`, and events in their order."""

    header: Header
    facts: tuple[Facts, ...]
    events: tuple[Captured, ...]

    @classmethod
    def of(cls, capture: Capture) -> "Story":
        """Read a capture to its end. Raises CaptureError."""
        lines = list(capture)
        facts = tuple(line for line in lines if isinstance(line, Facts) and line.at == "start")
        return cls(capture.header, facts, tuple(line for line in lines if isinstance(line, Captured)))

    def only(self, chosen: Iterable[Captured]) -> "Story":
        return replace(self, events=tuple(chosen))

    def told(self, workers: int) -> list[Told]:
        """Return the events as messages of a stream with so many shards."""
        subjects = Subjects("explore", self.header.cluster or "cluster", workers)
        messages, at_s, before_s = [], 0.0, None
        for number, line in enumerate(self.events, start=1):
            now_s = unix_s(line.position.time or line.event.time)
            if now_s is not None and before_s is not None:
                at_s += min(max(now_s - before_s, 0.0), GAP_S_MAX)
            before_s = now_s if now_s is not None else before_s
            event = line.event
            messages.append(
                Told(
                    sequence=number * _AHEAD_OF_COPY,
                    name=f"{line.position.seq}:{event.id}",
                    key=event.key,
                    uid=event.uid,
                    subject=subjects.event(event.key),
                    headers=events.encode(event),
                    body=line.data,
                    at_s=at_s,
                    seen=seen_of(line),
                    ends=event.type is EventType.DELETED,
                )
            )
        return messages


class Ending(msgspec.Struct, frozen=True):
    """What the registries and the dead letters hold in the end. `records`: the uid and what is said, by place."""

    records: dict[Place, tuple[str, dict[str, str]]]
    dead: dict[ObjectKey, str]


class Unsaid(msgspec.Struct, frozen=True):
    """What depends on which states were replaced before their turn, and on who died when: it is not compared.

    `no_runtime`: uid and model wherever the last state of that model names no runtime. `models`: the last one of each
    uid; whether the object was going when the record of a former one was closed is left open. `homes`: of each uid that
    moved between registries, the last one. Its records in others are the sweep's affair (docs/registries.md).
    """

    no_runtime: frozenset[tuple[str, str]]
    models: dict[str, str]
    homes: dict[str, str]

    def said(self, uid: str, registry: str, environment: str, record: Record) -> dict[str, str] | None:
        """Return what is compared of a record, None for nothing."""
        said = content(record, environment)
        if (uid, record.model_id) in self.no_runtime:
            del said["runtime"]
        if said.get("modelVersion") == "":
            del said["version"]
        if self.models.get(uid, record.model_id) != record.model_id:
            said.pop("deleted", None)
        if uid in self.homes:
            said.pop("history", None)
            return said if self.homes[uid] == registry else None
        return said


class Plan(msgspec.Struct, frozen=True):
    """What must come of a story however it goes.

    `assumed`: by registry, the versions that are taken to exist. `left_out`: uids that are not compared, and why.
    `unread`: objects with an event that does not decode; whether that is the last word on them depends on deliveries.
    """

    ending: Ending
    assumed: dict[str, dict[str, str]]
    left_out: dict[str, str]
    unread: frozenset[ObjectKey]
    unsaid: Unsaid


def plan_of(story: Story) -> Plan:
    """Decide a story in its order."""
    planner = Planner(story.header)
    for facts in story.facts:
        planner.facts(facts)
    waits: set[str] = set()
    lived: dict[str, list[str]] = {}  # the registries of each uid, one after the other
    for line in story.events:
        for step in planner.decide(line):
            if step.result == "retry":
                waits.add(step.uid)
            if step.registry and lived.setdefault(step.uid, [])[-1:] != [step.registry]:
                lived[step.uid].append(step.registry)
    told = _Said(story)
    moved = {uid: names for uid, names in lived.items() if len(names) > 1}
    returned = [uid for uid, names in moved.items() if len(set(names)) < len(names)]
    unsaid = Unsaid(told.no_runtime, told.models, {uid: names[-1] for uid, names in moved.items()})
    return Plan(
        ending=ending_of(planner.registries, planner.dead_letters, unsaid),
        assumed={name: registry.assumed for name, registry in planner.registries.items()},
        left_out={
            **dict.fromkeys(sorted(told.unrecorded), UNRECORDED_END),
            **dict.fromkeys(sorted(returned), RETURNED),
            **dict.fromkeys(sorted(waits), WAITS),
        },
        unread=frozenset(told.unread),
        unsaid=unsaid,
    )


def ending_of(registries: Mapping[str, MemoryRegistry], dead: Mapping[ObjectKey, str], unsaid: Unsaid) -> Ending:
    """Return what is compared."""
    records: dict[Place, tuple[str, dict[str, str]]] = {}
    for name, registry in registries.items():
        environments = {number: environment for environment, number in registry.environments().items()}
        for record in registry.records():
            environment, uid = environments[record.environment_id], uid_of(record)
            said = unsaid.said(uid, name, environment, record)
            if said is not None:
                records[name, environment, record.name] = uid, said
    return Ending(records, dict(dead))


def uid_of(record: Record) -> str:
    """Return the uid that a record is about: by its property, its externalId, or its name."""
    if record.stamp is not None:
        return record.stamp.uid
    if record.external_id:
        return record.external_id.removeprefix("kserve:").partition("/")[0]
    return record.name.split("/")[1] if "/" in record.name else ""


class _Said:
    """What the events themselves say of their objects."""

    def __init__(self, story: Story) -> None:
        self.unread: set[ObjectKey] = set()
        self._newest: dict[str, Freshness] = {}
        self.models: dict[str, str] = {}  # the label of the newest state
        self._carried_last: dict[str, tuple[str, ...]] = {}
        self._carried: dict[str, set[str]] = {}
        self._late: set[str] = set()
        runtimes: dict[tuple[str, str], str] = {}
        prefix = story.header.deciding.prefix
        for line in story.events:
            seen = seen_of(line)
            ours = line.event.cluster_id == story.header.cluster_id
            if seen is None or not ours or seen.obj.metadata.uid != seen.uid:
                self.unread.add(line.event.key)
                continue
            self._carried.setdefault(seen.uid, set()).update(seen.models)
            newest = self._newest.get(seen.uid)
            if newest is not None and compare(seen.freshness, newest) is Order.OLDER:
                self._late.add(seen.uid)
                continue
            self._newest[seen.uid], self._carried_last[seen.uid] = seen.freshness, seen.models
            wanted = want(seen, prefix)
            self.models.pop(seen.uid, None)
            if wanted.model is not None:
                self.models[seen.uid] = wanted.model
                runtimes[seen.uid, wanted.model] = wanted.runtime
        self.no_runtime = frozenset(name for name, runtime in runtimes.items() if not runtime)

    @property
    def unrecorded(self) -> set[str]:
        """The known limit `unrecorded_end` of docs/consumer-simulation.md, for what the capture itself tells late."""
        return {uid for uid in self._late if not self._carried_last[uid] and self._carried[uid]}


def seen_of(line: Captured) -> Observation | None:
    """Return what an event shows, None where it does not decode."""
    try:
        return observe(line.event, line.obj)
    except BadEventError:
        return None
