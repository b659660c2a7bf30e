"""Objects, resourceVersions and a bounded history of events. Pure: no I/O; time comes from a clock given to it.

Every object is encoded once, when it is written; lists and all watchers share those bytes. One counter numbers the
writes to all resources, as etcd's revision does.
"""

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from sandbox.cluster.status import Obj, expired, internal

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

OBJECT_BYTES_MAX = 1_572_864
"""Bytes of one object: etcd refuses requests above 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of one object: what selectors and conflicts need, and the encoded object."""

    namespace: str
    name: str
    uid: str
    version: int
    labels: dict[str, str]
    fields: dict[str, str]
    deleting: bool
    raw: bytes

    @property
    def key(self) -> str:
        """The key in etcd's order, which is the order of lists: `-` sorts before the separator `/`."""
        return f"{self.namespace}/{self.name}"

    def decode(self) -> Obj:
        """Return a fresh copy, free to change."""
        obj: Obj = msgspec.json.decode(self.raw)
        return obj


@dataclass(frozen=True, slots=True)
class Event:
    """One write. For DELETED `entry` is the last state under the delete's resourceVersion."""

    type: EventType
    version: int
    entry: Entry
    previous: Entry | None
    at_s: float


class Log:
    """The last events of one resource. Positions count events since the beginning and stay valid when old ones go."""

    def __init__(self, floor: int, events_max: int, age_s_max: float | None) -> None:
        self.floor = floor  # a watch can start at this resourceVersion, not below
        self.closed = False  # nothing will be appended any more: watches end when they have read the rest
        self.waiters: set[Callable[[], None]] = set()  # called after each append, and at the close
        self._events: list[Event] = []
        self._dropped = 0
        self._events_max = events_max
        self._age_s_max = age_s_max

    @property
    def begin(self) -> int:
        """The position of the oldest event that is still known."""
        return self._dropped

    @property
    def end(self) -> int:
        """The position of the next event."""
        return self._dropped + len(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)
        self.trim(event.at_s)
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for wake in tuple(self.waiters):
            wake()

    def trim(self, now_s: float) -> None:
        """Forget what exceeds the bounds of number and age."""
        excess = max(0, len(self._events) - self._events_max)
        if self._age_s_max is not None:
            limit_s = now_s - self._age_s_max
            excess = max(excess, bisect.bisect_left(self._events, limit_s, key=lambda event: event.at_s))
        if excess:
            self.forget(excess)

    def forget(self, number: int) -> None:
        """Drop the oldest `number` events: a watch that starts before them gets 410."""
        if number:
            self.floor = self._events[number - 1].version
            del self._events[:number]
            self._dropped += number

    def position_after(self, version: int) -> int:
        """Return where a watch from `version` begins; raises ApiError 410 when that is forgotten."""
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        return self._dropped + bisect.bisect_right(self._events, version, key=lambda event: event.version)

    def read(self, position: int, limit: int) -> list[Event] | None:
        """Return up to `limit` events from `position` on, or None when the first of them is forgotten."""
        start = position - self._dropped
        return None if start < 0 else self._events[start : start + limit]

    def newer_than(self, version: int) -> list[Event]:
        """Return all events above `version`; raises ApiError 410 when some are forgotten."""
        return self._events[self.position_after(version) - self._dropped :]


@dataclass(frozen=True, slots=True)
class History:
    """How much is remembered per resource: a number of events and, unless None, an age in seconds."""

    events_max: int = 10_000
    age_s_max: float | None = None
    first_version: int = 10
    """Where numbering starts: above 1, so that a watch from 1 is too old, as on every real server."""


class Store:
    """All objects of all resources, by resource and key."""

    def __init__(self, history: History, clock_s: Callable[[], float]) -> None:
        self.version = history.first_version
        self.listeners: list[Callable[[str, Event], None]] = []
        self._history = history
        self._clock_s = clock_s
        self._objects: dict[str, dict[str, Entry]] = {}
        self._logs: dict[str, Log] = {}
        self._sorted: dict[str, list[Entry]] = {}

    def open(self, resource: str) -> None:
        """Begin to keep `resource`, or begin its history anew; watches of an older history end."""
        self._objects.setdefault(resource, {})
        if resource in self._logs:
            self._logs[resource].close()
        self._logs[resource] = Log(self.version, self._history.events_max, self._history.age_s_max)

    def close(self, resource: str) -> None:
        """Forget `resource` and everything of it; its watches end."""
        self._objects.pop(resource)
        self._sorted.pop(resource, None)
        self._logs.pop(resource).close()

    def get(self, resource: str, key: str) -> Entry | None:
        return self._objects[resource].get(key)

    def log(self, resource: str) -> Log:
        """Return the history of `resource`, already trimmed to its age limit."""
        log = self._logs[resource]
        log.trim(self._clock_s())
        return log

    def put(self, resource: str, obj: Obj, *, fields: dict[str, str], version: int | None = None) -> Entry:
        """Write `obj` under the next resourceVersion, or under `version` when that is higher than all so far.

        Raises ApiError 500 for an object that etcd would refuse for its size.
        """
        number = max(self.version + 1, version or 0)
        entry = _entry(obj, number, fields)
        if len(entry.raw) > OBJECT_BYTES_MAX:
            raise internal("etcdserver: request is too large")
        objects = self._objects[resource]
        previous = objects.get(entry.key)
        objects[entry.key] = entry
        self._record(resource, Event("MODIFIED" if previous else "ADDED", number, entry, previous, self._clock_s()))
        return entry

    def remove(self, resource: str, key: str, *, version: int | None = None) -> Entry:
        """Delete an object; returns its last state under the delete's own resourceVersion."""
        previous = self._objects[resource].pop(key)
        number = max(self.version + 1, version or 0)
        entry = renumbered(previous, number)
        self._record(resource, Event("DELETED", number, entry, previous, self._clock_s()))
        return entry

    def advance(self, version: int) -> None:
        """Move the counter, as writes to resources that nobody watches here would."""
        self.version = max(self.version, version)

    def forget_history(self, writes: int = 1) -> None:
        """Start all histories anew, as a restart does; `writes` go by meanwhile, so that older versions are expired."""
        self.version += writes
        for resource in self._logs:
            self.open(resource)

    def entries(self, resource: str, version: int | None = None) -> list[Entry]:
        """Return the objects in key order, now or as they were at `version`.

        Raises ApiError 410 when the history no longer reaches back to `version`.
        """
        if version is None or version >= self.version:
            if resource not in self._sorted:
                self._sorted[resource] = _in_order(self._objects[resource])
            return self._sorted[resource]
        past = dict(self._objects[resource])
        for event in reversed(self._logs[resource].newer_than(version)):
            if event.previous is None:
                past.pop(event.entry.key)
            else:
                past[event.entry.key] = event.previous
        return _in_order(past)

    def _record(self, resource: str, event: Event) -> None:
        self.version = event.version
        self._sorted.pop(resource, None)
        self._logs[resource].append(event)
        for listener in tuple(self.listeners):
            listener(resource, event)


def encode(obj: Obj) -> bytes:
    """Encode as the API server does: keys in order, no spaces."""
    return msgspec.json.encode(obj, order="sorted")


def renumbered(entry: Entry, version: int) -> Entry:
    """Return the same state under another resourceVersion."""
    return _entry(entry.decode(), version, entry.fields)


def _in_order(objects: dict[str, Entry]) -> list[Entry]:
    return [objects[key] for key in sorted(objects)]


def _entry(obj: Obj, version: int, fields: dict[str, str]) -> Entry:
    metadata = obj["metadata"]
    metadata["resourceVersion"] = str(version)
    return Entry(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        version=version,
        labels=metadata.get("labels") or {},
        fields=fields,
        deleting="deletionTimestamp" in metadata,
        raw=encode(obj),
    )
