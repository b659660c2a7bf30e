"""What the owner of an object is told by Kubernetes Events, and which of these are written. Pure; time is given.

A notice is a courtesy: an Event on the object, seen by `kubectl describe`, of what a person should know or do. The
truth is in the registry, the dead letters and the log. So it is kept cheap: what is said again becomes a count on the
same Event, and there is a limit for each object and for this process. `kube_events.py` writes them.

"Reason" is Kubernetes' word for the one word in CamelCase; with us that is the topic, and a reason is a sentence.
"""

import hashlib
import math
from collections import OrderedDict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from consumer.ratelimit import RateLimit
from shared.objects import ObjectKey
from shared.uris import clean_text

WINDOW_S: Final = 3600.0  # as long as an API server keeps an Event by default: what comes again later is a new one
COUNT_PAUSE_S: Final = 60.0  # between two writes of one count; also before a failed write is tried again
RETRIED_FOR_S: Final = 600.0  # after the notice
NEW_PER_OBJECT: Final = 6  # an hour
NEW_PER_PROCESS: Final = 60  # a minute: a first start with thousands of objects must not flood etcd
COUNTS_PER_PROCESS: Final = 60  # a minute
EVENTS_MAX: Final = 10_000  # remembered, about 1 KB each; the longest untouched is forgotten first
MESSAGE_CHARS: Final = 1000  # Kubernetes takes 1024 bytes of the newer kind of Event; ours are of the older one
_NAME_CHARS: Final = 200  # of the object's name, in the Event's; that may have 253


class Topic(StrEnum):
    """What an Event is about: its `reason`."""

    REGISTERED = "Registered"
    SYNC_FAILED = "RegistrySyncFailed"
    REGISTRY_NOT_FOUND = "RegistryNotFound"
    CONFLICTING_LABELS = "ConflictingLabels"
    NOT_INDEXED = "NotIndexed"
    OTHER_MODELS_VERSION = "VersionOfAnotherModel"
    OTHER_RECORDS_ID = "IdOfAnotherRecord"
    WRITE_BACK_DEFERRED = "WriteBackDeferred"
    WRITE_BACK_LIMITED = "WriteBackLimited"

    @property
    def event_type(self) -> str:
        """Normal or Warning: whether a person has something to do."""
        return "Normal" if self in _NORMAL else "Warning"


_NORMAL: Final = frozenset({Topic.REGISTERED, Topic.WRITE_BACK_DEFERRED})
# For so many seconds these are told once for each object and message: we come upon them again with each look or try,
# and nothing has happened since. What a person must mend is told anew when its Event has expired.
_ONCE_FOR_S: Final = {
    Topic.WRITE_BACK_DEFERRED: math.inf,
    Topic.OTHER_RECORDS_ID: math.inf,
    Topic.REGISTRY_NOT_FOUND: WINDOW_S,
}


class About(msgspec.Struct, frozen=True):
    """The object that a notice is about. `uid` and `resource_version` are "" where only its name is known."""

    key: ObjectKey
    uid: str = ""
    resource_version: str = ""


class Notice(msgspec.Struct, frozen=True):
    """One thing to tell. `message` is for a person, and may come from anywhere: `said` makes it fit to be shown."""

    topic: Topic
    message: str

    @property
    def said(self) -> str:
        """The message in one line, without credentials in addresses, and not too long."""
        return clean_text(" ".join(self.message.split()))[:MESSAGE_CHARS]


def registered(record_id: str, model_id: str, registry: str) -> Notice:
    where = clean_text(registry)
    return Notice(
        Topic.REGISTERED, f"registered model {model_id} is recorded as deployed: record {record_id} in {where}"
    )


def sync_failed(reason: str) -> Notice:
    return Notice(Topic.SYNC_FAILED, reason)


def registry_not_found(reason: str) -> Notice:
    return Notice(
        Topic.REGISTRY_NOT_FOUND, f"no registry is found for this object, and it is tried again until one is: {reason}"
    )


def other_records_id(key: str, value: str) -> Notice:
    return Notice(
        Topic.OTHER_RECORDS_ID,
        f"{key}={value!r} is not the id of this object's record: it is ignored, and written anew when that is allowed",
    )


def write_back_deferred(key: str, record_id: str | None, cost: str) -> Notice:
    return Notice(
        Topic.WRITE_BACK_DEFERRED,
        f"record {record_id} is true, but {key} is not written yet: WRITE_BACK does not allow what it would cost "
        f"now ({cost}); it is written as soon as that is allowed",
    )


def write_back_limited(key: str, most: int, per_s: float) -> Notice:
    return Notice(
        Topic.WRITE_BACK_LIMITED,
        f"{key} was written {most} times within {per_s:.0f} s and is gone or changed again, so it waits: does "
        "another tool own the labels or annotations of this object? Let it ignore this key",
    )


class Told(StrEnum):
    """What becomes of a notice."""

    NEW = "new"
    COUNTED = "counted"
    REPEATED = "repeated"  # nothing: it was said
    LIMITED = "limited"  # nothing: too many


class Writing(msgspec.Struct, frozen=True):
    """An Event to write: a new one, or the new count of one that was written. Times are RFC 3339."""

    about: About
    notice: Notice
    name: str
    count: int
    first: str
    last: str
    is_new: bool


class _Event(msgspec.Struct):
    """An Event as it should be. `written`: the count that the API server has, 0 for none. Times in Unix seconds."""

    about: About
    notice: Notice
    first: float
    last: float
    not_before: float
    count: int = 1
    written: int = 0


_Slot = tuple[ObjectKey, str, Topic]


class Ledger:
    """The Events of this process: which exist, and what is still to be written of them."""

    def __init__(self) -> None:
        self._events: OrderedDict[_Slot, _Event] = OrderedDict()
        self._pending: dict[_Slot, None] = {}  # in the order in which they came
        self._per_object = RateLimit(NEW_PER_OBJECT, 3600.0)
        self._new = RateLimit(NEW_PER_PROCESS, 60.0)
        self._counts = RateLimit(COUNTS_PER_PROCESS, 60.0)

    def add(self, about: About, notice: Notice, now: float) -> Told:
        """Take a notice in; return what becomes of it."""
        slot = (about.key, about.uid, notice.topic)
        event = self._events.get(slot)
        once_for_s = _ONCE_FOR_S.get(notice.topic, 0.0)
        if event is not None and event.notice == notice and now - event.last < once_for_s:
            return Told.REPEATED
        if event is not None and now - event.last < WINDOW_S:
            event.about, event.notice, event.last = about, notice, now
            event.count += 1
            self._events.move_to_end(slot)
            self._pending[slot] = None
            return Told.COUNTED
        owner = f"{about.key} {about.uid}"
        kind = notice.topic.event_type
        if self._per_object.wait_s(owner, now) > 0 or self._new.wait_s(kind, now) > 0:
            return Told.LIMITED
        self._per_object.spend(owner, now)
        self._new.spend(kind, now)  # what only informs must not crowd out what somebody has to mend
        self._events[slot] = _Event(about, notice, first=now, last=now, not_before=now)
        self._events.move_to_end(slot)
        self._pending[slot] = None
        if len(self._events) > EVENTS_MAX:
            forgotten, _ = self._events.popitem(last=False)
            self._pending.pop(forgotten, None)
        return Told.NEW

    def next(self, now: float) -> Writing | None:
        """Return what is to be written now, once; None when nothing is."""
        for slot in self._pending:
            event = self._events[slot]
            if event.not_before > now:
                continue
            if event.written and self._counts.wait_s("", now) > 0:
                continue
            del self._pending[slot]
            if event.written:
                self._counts.spend("", now)
            writing = _writing(slot, event)
            event.written, event.not_before = event.count, now + COUNT_PAUSE_S
            return writing
        return None

    def wakes_at(self, now: float) -> float | None:
        """Return when `next` may have something, None while nothing is to be written."""
        free_at = now + self._counts.wait_s("", now)
        times = (
            max(self._events[slot].not_before, free_at if self._events[slot].written else now) for slot in self._pending
        )
        return min(times, default=None)

    def failed(self, writing: Writing, now: float, *, again: bool) -> None:
        """Say that what `next` returned was not written; `again`: it may be, later."""
        slot = (writing.about.key, writing.about.uid, writing.notice.topic)
        event = self._events.get(slot)
        if event is None:
            return
        if writing.is_new:
            event.written = 0
        if again and now - event.last < RETRIED_FOR_S:
            self._pending[slot] = None
        elif writing.is_new:
            del self._events[slot]  # whatever comes next begins a new one
            self._pending.pop(slot, None)


def _writing(slot: _Slot, event: _Event) -> Writing:
    key, uid, topic = slot
    # The same Event has the same name, so that one whose answer was lost is not written twice.
    digest = hashlib.blake2b(f"{key}\n{uid}\n{topic}\n{event.first}".encode(), digest_size=8).hexdigest()
    return Writing(
        about=event.about,
        notice=event.notice,
        name=f"{key.name[:_NAME_CHARS].rstrip('-.')}.{digest}",
        count=event.count,
        first=_rfc3339(event.first),
        last=_rfc3339(event.last),
        is_new=event.written == 0,
    )


def _rfc3339(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
