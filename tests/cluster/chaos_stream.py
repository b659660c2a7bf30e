"""What the event stream says, followed from its beginning, held against what is true.

stream ──headers──► Stream.events, .last ──┐
                                           ├──► disagreements
a fresh list ──► living: key -> Living ────┘
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from shared.events import Event, EventType, decode
from shared.objects import Kind, ObjectKey, compare_resource_versions
from shared.reduce import digest_of, reduce_object
from tests.eventually import eventually

STREAM = "ISVC_EVENTS"


class Living(msgspec.Struct, frozen=True):
    """An object that exists: its identity, and the digest of what matters of it."""

    uid: str
    digest: str


Truth = Mapping[ObjectKey, Living]


def living(kind: Kind, objects: Iterable[Mapping[str, Any]]) -> dict[ObjectKey, Living]:
    """Return what a list of one kind shows."""
    found: dict[ObjectKey, Living] = {}
    for obj in objects:
        reduced = reduce_object(obj)
        metadata = reduced["metadata"]
        key = ObjectKey(kind, metadata["namespace"], metadata["name"])
        found[key] = Living(metadata["uid"], digest_of(reduced))
    return found


class Stream:
    """All events of the broker, headers only, in the order in which it stored them."""

    def __init__(self, client: Client) -> None:
        self.events: list[Event] = []
        self.last: dict[ObjectKey, Event] = {}
        self.last_of: dict[str, Event] = {}
        """By uid."""
        self._client = client
        self._sequence = 0

    async def is_read(self) -> bool:
        """Say whether everything that the broker has stored is here."""
        info = await self._client.jetstream(timeout=2).stream_info(STREAM)
        return self._sequence == info.state.last_seq

    def of(self, kind: EventType) -> list[Event]:
        return [event for event in self.events if event.type is kind]

    async def take(self, message: Msg) -> None:
        if ".evt." in message.subject:
            event = decode(message.headers)
            self.events.append(event)
            self.last[event.key] = self.last_of[event.uid] = event
        self._sequence = message.metadata.sequence.stream


@asynccontextmanager
async def following(url: str) -> AsyncIterator[Stream]:
    """Follow the stream, which must exist, from its first message."""
    client = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    try:
        stream = Stream(client)
        wanted = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, headers_only=True)
        jetstream = client.jetstream(timeout=5)
        await jetstream.subscribe("isvc.>", stream=STREAM, cb=stream.take, ordered_consumer=True, config=wanted)
        yield stream
    finally:
        await client.close()


def disagreements(truth: Truth, stream: Stream) -> list[str]:
    """Return in what the last message about each object differs from the cluster.

    Every living object's last message has its uid and digest; every uid that was ever mentioned and lives no more ends
    with a tombstone.
    """
    found = [problem for key, object_ in truth.items() if (problem := _problem(key, object_, stream.last.get(key)))]
    uids = {object_.uid for object_ in truth.values()}
    undead = (event for uid, event in stream.last_of.items() if uid not in uids and event.type is not EventType.DELETED)
    return [*found, *(f"{event.key} {event.uid} went without a tombstone" for event in undead)]


async def agreement(truth: Callable[[], Awaitable[Truth]], stream: Stream, within_s: float) -> None:
    """Wait until the stream says what is true. Raises AssertionError that names the first of what differs."""
    wrong: list[str] = []

    async def agrees() -> bool:
        now = await truth()
        wrong[:] = disagreements(now, stream)
        return not wrong and await stream.is_read() and now == await truth()

    try:
        await eventually(agrees, "the stream says what the cluster says", within_s)
    except AssertionError as error:
        raise AssertionError(f"{error}; {len(wrong)} differ: {wrong[:5]}") from None


def _problem(key: ObjectKey, object_: Living, event: Event | None) -> str:
    if event is None:
        return f"{key} {object_.uid} was never mentioned"
    if event.uid != object_.uid:
        return f"{key} is {object_.uid}, the stream says {event.type} of {event.uid}"
    if event.type is EventType.DELETED:
        return f"{key} {object_.uid} lives and has a tombstone"
    return "" if event.digest == object_.digest else f"{key} {object_.uid} was last published in another state"


def disorder(events: Iterable[Event]) -> list[str]:
    """Return where the versions of one uid go down within an epoch, other than by an exact repetition."""
    highest: dict[tuple[str, int], str] = {}
    seen: set[str] = set()
    found = []
    for event in events:
        place = (event.uid, event.epoch)
        before = highest.get(place, event.resource_version)
        if compare_resource_versions(event.resource_version, before) >= 0:
            highest[place] = event.resource_version
        elif event.id not in seen:
            found.append(f"{event.key} {event.uid}: {event.resource_version} after {before}")
        seen.add(event.id)
    return found
