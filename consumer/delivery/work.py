"""One message between its arrival and its end."""

from typing import Protocol

import msgspec

from consumer import looks
from consumer.freshness import Freshness
from consumer.looks import RecordRef
from consumer.notices import About
from consumer.observation import Observation, PassedVersion, observe, want
from shared import events, subjects
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError
from shared.events import EventType
from shared.objects import ObjectKey, ReducedObject

_DECODER = msgspec.json.Decoder(ReducedObject)


class Message(Protocol):
    """A message as the broker delivered it; `message.py` has the real one.

    Every answer may raise TransientError: it did not leave, and the message will be delivered again.
    """

    @property
    def subject(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def sequence(self) -> int: ...
    @property
    def num_delivered(self) -> int: ...
    @property
    def provenance(self) -> dict[str, str]: ...

    async def ack(self) -> None:
        """Say that the message is done."""

    async def in_progress(self) -> None:
        """Ask the broker for another `ack_wait`."""

    async def terminate(self, reason: str) -> None:
        """Say that the message will never be done."""


class Work(msgspec.Struct):
    """A message that waits, is at hand, or waits for its next try.

    `seen` is None for a look (the live object is still to be read) and where the message does not decode; then
    `failure` says why. `forced`: a look that reads the registry even if the object is as it was. `creates_first`: the
    object has just been created before our eyes, so its record cannot exist. `burial`: it is to be buried for this
    reason as soon as the broker takes it. `settled`: it was applied, and what it complained of earlier is void.
    `yields`: it failed, perhaps for good, and a newer state takes its place. `recorded`: its records are written; what
    is left is the object's id, or a registry that it has left, and a newer state takes its place, too.
    `named`: the records that a look names. `passed`: messages whose place this one took, and whose version only it can
    still tell; they are acknowledged with it, because a crash before its effect would lose them. `about`: the object
    that it was handled for, which a look does not say.
    """

    key: ObjectKey
    message: Message
    seen: Observation | None = None
    failure: BadEventError | None = None
    forced: bool = False
    creates_first: bool = False
    attempt: int = 1
    burial: str = ""
    settled: bool = False
    yields: bool = False
    recorded: bool = False
    named: tuple[RecordRef, ...] = ()
    passed: list["Work"] = []
    about: About | None = None

    @property
    def uid(self) -> str:
        """The uid of the object, "" for a look; each has a slot of its own in the queue.

        A message that does not decode has one for itself: nothing may replace it before it is buried.
        """
        if self.failure is not None:
            return f"undecodable/{self.message.sequence}"
        return self.seen.uid if self.seen else ""

    @property
    def is_look(self) -> bool:
        """Whether it names an object, and tells of none of its states."""
        return self.seen is None and self.failure is None

    @property
    def is_own_look(self) -> bool:
        """Whether no message of the broker stands behind it."""
        return isinstance(self.message, _Nothing)

    @property
    def freshness(self) -> Freshness | None:
        return self.seen.freshness if self.seen else None


def receive(message: Message, cluster_id: str) -> Work:
    """Return the work that a message asks for. Raises BadEventError when not even the object's name is readable."""
    channel, key = subjects.parse_object_subject(message.subject)
    if channel == "look":
        return Work(key, message, forced=True, named=looks.decode(message.headers))
    try:
        event = events.decode(message.headers)
        obj = _DECODER.decode(message.body)
    except (BadEventError, *UNDECODABLE) as error:
        return Work(key, message, failure=BadEventError(f"the event of {key} does not decode: {error}"))
    if event.key != key or event.uid != obj.metadata.uid:
        return Work(key, message, failure=BadEventError(f"the event of {key} speaks of another object, {event.key}"))
    if event.cluster_id != cluster_id:
        return Work(key, message, failure=BadEventError(f"the event of {key} is from cluster id {event.cluster_id}"))
    fresh = event.type is EventType.CREATED and not event.synthetic and message.num_delivered == 1
    return Work(key, message, observe(event, obj), creates_first=fresh)


class _Nothing(msgspec.Struct, frozen=True):
    """The message of a look that we ask of ourselves: nobody waits for its end."""

    subject: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""
    sequence: int = 0
    num_delivered: int = 1
    provenance: dict[str, str] = {}

    async def ack(self) -> None:
        pass

    async def in_progress(self) -> None:
        pass

    async def terminate(self, reason: str) -> None:
        pass


def look_later(key: ObjectKey) -> Work:
    """Return a look of our own, for an id that could not be written yet."""
    return Work(key, _Nothing())


def passed_over(seen: Observation, prefix: str) -> tuple[PassedVersion, ...]:
    """Return the versions that a newer state takes over from one whose turn never came."""
    wanted = want(seen, prefix)
    fresh = seen.freshness
    version = PassedVersion(wanted.model or "", wanted.version, fresh.resource_version, seen.time, fresh.epoch)
    return (*seen.passed, version)
