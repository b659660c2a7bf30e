"""What the broker holds, read back: the inventory of a kind, its sync marker, the last message of an object.

The adapter of JetStream's reading side for the producer (`producer/publisher.py` is the writing side).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from producer.changes import Entry
from shared.broker_errors import translated
from shared.errors import BadEventError, RefusedToStartError, UnreachableError
from shared.events import Event, EventType, SyncMarker, decode, decode_marker
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, escape

logger = logging.getLogger(__name__)

_BATCH: Final = 1000  # headers of about 1.5 KB each
_SILENCE_S: Final = 5.0
_CONSUMER_IDLE_S: Final = 30.0  # the server forgets a reader that died


class Stored(msgspec.Struct, frozen=True):
    """A message as it lies in the stream."""

    sequence: int
    body: bytes


class Holdings(msgspec.Struct, frozen=True):
    """What the broker knows of one kind. `undecodable` counts subjects whose last message is none of ours."""

    entries: dict[ObjectKey, Entry]
    marker: SyncMarker | None
    undecodable: int

    @property
    def epoch(self) -> int:
        """The highest epoch, 0 when there is none."""
        marked = self.marker.epoch if self.marker is not None else 0
        return max(marked, max((entry.epoch for entry in self.entries.values()), default=0))


class Ledger:
    """Reads one stream. Raises UnreachableError when the broker does not answer, PermanentError when it refuses."""

    def __init__(self, client: Client, jetstream: JetStreamContext, stream: str, subjects: Subjects) -> None:
        self._client = client
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = subjects

    async def created(self) -> str:
        """Return when the stream was created: another answer means another stream."""
        with translated(f"reading the stream {self._stream}"):
            info = await self._jetstream.stream_info(self._stream)
        return str(info.created)

    async def last(self, key: ObjectKey) -> Stored | None:
        """Return the last event of an object, or None. Asks the stream's leader: a replica may be behind."""
        subject = self._subjects.event(key)
        with translated(f"reading the last message of {key}"):
            try:
                message = await self._jetstream.get_msg(self._stream, subject=subject)
            except nats.js.errors.NotFoundError:
                return None
        return Stored(message.seq or 0, message.data or b"")

    async def holdings(self, kind: Kind, cluster_id: str) -> Holdings:
        """Read the inventory of a kind: the last message of each object, headers only.

        Raises RefusedToStartError when another cluster's events are found under our name.
        """
        marker = await self._marker(kind, cluster_id)
        with translated(f"reading the inventory of {kind} from {self._stream}"):
            entries, undecodable = await self._entries(kind, cluster_id)
        if undecodable:
            logger.error("objects in the inventory cannot be read", extra={"kind": kind, "count": undecodable})
        return Holdings(entries, marker, undecodable)

    async def _marker(self, kind: Kind, cluster_id: str) -> SyncMarker | None:
        subject = self._subjects.sync(kind)
        with translated(f"reading the sync marker of {kind}"):
            try:
                message = await self._jetstream.get_msg(self._stream, subject=subject)
            except nats.js.errors.NotFoundError:
                return None
        try:
            found, marker = decode_marker(message.headers, message.data or b"")
        except BadEventError as error:
            logger.warning("the sync marker cannot be read", extra={"subject": subject, "error": str(error)})
            return None
        self._require_ours(found, cluster_id)
        return marker

    async def _entries(self, kind: Kind, cluster_id: str) -> tuple[dict[ObjectKey, Entry], int]:
        entries: dict[ObjectKey, Entry] = {}
        undecodable = 0
        async with self._reading(kind) as batches:
            async for message in batches:
                event = _decoded(message.headers, message.subject)
                if event is None:
                    undecodable += 1
                    continue
                self._require_ours(event.cluster_id, cluster_id)
                entries[event.key] = _entry(event, message.metadata.sequence.stream)
        return entries, undecodable

    @asynccontextmanager
    async def _reading(self, kind: Kind) -> AsyncIterator[AsyncIterator[Msg]]:
        """Yield the last messages of a kind. Not through nats-py's `fetch`, which can wait although messages came."""
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(message: Msg) -> None:
            arrived.put_nowait(message)

        inbox = self._client.new_inbox()
        replies = await self._client.subscribe(inbox, cb=take)
        try:
            consumer = await self._jetstream.add_consumer(self._stream, _reading(self._subjects.all_events(kind)))
            yield self._messages(consumer, inbox, arrived)
            await self._jetstream.delete_consumer(self._stream, consumer.name)
        finally:
            await replies.unsubscribe()

    async def _messages(self, consumer: ConsumerInfo, inbox: str, arrived: "asyncio.Queue[Msg]") -> AsyncIterator[Msg]:
        left = consumer.num_pending or 0
        while left > 0:
            size = min(_BATCH, left)  # known to be there
            request = msgspec.json.encode({"batch": size, "expires": int(_SILENCE_S * 1e9)})
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer.name}", request, reply=inbox
            )
            for _ in range(size):
                try:
                    async with asyncio.timeout(_SILENCE_S):
                        message = await arrived.get()
                except TimeoutError as error:
                    raise UnreachableError("reading the inventory: JetStream fell silent") from error
                _require_data(message)
                left -= 1
                yield message

    def _require_ours(self, found: str, ours: str) -> None:
        if found != ours:
            name, token = self._subjects.cluster, f"{self._subjects.prefix}.{escape(self._subjects.cluster)}.>"
            raise RefusedToStartError(
                f"Under the cluster name {name} the broker holds events of the cluster {found}, and this is the "
                f"cluster {ours}: set CLUSTER_NAME to another one. If this cluster replaces that one for good, first "
                f"purge the subjects {token} of {self._stream} (the records of the old one are then left alone)."
            )


def _reading(subjects: str) -> ConsumerConfig:
    return ConsumerConfig(
        description="isvc-sync: producer reads the inventory",
        filter_subject=subjects,
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        headers_only=True,
        inactive_threshold=_CONSUMER_IDLE_S,
        num_replicas=1,
        mem_storage=True,
    )


def _require_data(message: Msg) -> None:
    """Refuse a status message in place of a stored one: its reply subject is empty."""
    if not message.reply:
        status = (message.headers or {}).get("Status", "unknown")
        raise UnreachableError(f"reading the inventory was cut short by the broker (status {status})")


def _decoded(headers: dict[str, str] | None, subject: str) -> Event | None:
    try:
        return decode(headers)
    except BadEventError as error:
        logger.warning("an event in the inventory does not decode", extra={"subject": subject, "error": str(error)})
        return None


def _entry(event: Event, sequence: int) -> Entry:
    return Entry(
        uid=event.uid,
        epoch=event.epoch,
        resource_version=event.resource_version,
        digest=event.digest,
        models=event.models,
        deleted=event.type is EventType.DELETED,
        sequence=sequence,
    )
