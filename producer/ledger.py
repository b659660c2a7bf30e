"""What the broker holds, read back: the inventory of a kind, its sync marker, the last message of an object.

The adapter of JetStream's reading side for the producer (`producer/publisher.py` is the writing side), and of the
purge by which old tombstones are forgotten (`producer/forgetting.py`).
"""

import logging
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime

import msgspec
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from producer.changes import Entry
from producer.entries import Entries
from shared.broker_errors import translated
from shared.errors import BadEventError, RefusedToStartError
from shared.events import Event, EventType, SyncMarker, decode
from shared.inventory import InventoryReader
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects, escape, shard_of

logger = logging.getLogger(__name__)


class Stored(msgspec.Struct, frozen=True):
    """A message as it lies in the stream."""

    sequence: int
    body: bytes


class Holdings(msgspec.Struct, frozen=True):
    """What the broker knows of one kind. `undecodable` counts subjects whose last message is none of ours."""

    entries: Mapping[ObjectKey, Entry]
    marker: SyncMarker | None
    undecodable: int

    @property
    def epoch(self) -> int:
        """The highest epoch, 0 when there is none."""
        marked = self.marker.epoch if self.marker is not None else 0
        return max(marked, max((entry.epoch for entry in self.entries.values()), default=0))


class Ledger:
    """Reads one stream, and purges what is forgotten.

    Raises UnreachableError when the broker does not answer, PermanentError when it refuses.
    """

    def __init__(self, client: Client, jetstream: JetStreamContext, stream: str, subjects: Subjects) -> None:
        self._reader = InventoryReader(client, jetstream, stream, subjects)
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = subjects

    async def created(self) -> str:
        """Return when the stream was created: another answer means another stream."""
        return (await self._reader.state()).created

    async def last(self, key: ObjectKey) -> Stored | None:
        """Return the last event of an object, or None. Asks the stream's leader: a replica may be behind."""
        subject = self._subjects.event(key)
        with translated(f"reading the last message of {key}"):
            try:
                message = await self._jetstream.get_msg(self._stream, subject=subject)
            except nats.js.errors.NotFoundError:
                return None
        return Stored(message.seq or 0, message.data or b"")

    def shard(self, key: ObjectKey) -> int:
        return shard_of(key, self._subjects.shards)

    async def taken(self, shard: int) -> int:
        """Return up to which sequence the consumers have taken a shard's messages; 0 while nobody ever did."""
        durable = self._subjects.durable(shard)
        with translated(f"reading the consumer {durable}"):
            try:
                info = await self._jetstream.consumer_info(self._stream, durable)
            except nats.js.errors.NotFoundError:
                return 0
        return info.ack_floor.stream_seq if info.ack_floor is not None else 0

    async def purge(self, key: ObjectKey, sequence: int) -> None:
        """Remove an object's messages up to and including that sequence. Events go last: they name the object."""
        assert sequence > 0, "a purge without a sequence would take everything"
        with translated(f"forgetting {key}"):
            for subject in (self._subjects.look(key), self._subjects.event(key)):
                # The server keeps what is at `seq` itself.
                await self._jetstream.purge_stream(self._stream, seq=sequence + 1, subject=subject)

    async def holdings(self, kind: Kind, cluster_id: str, namespace: str = "") -> Holdings:
        """Read the inventory of a kind, in one namespace or in all: the last message of each object, headers only.

        Raises RefusedToStartError when another cluster's events are found under our name.
        """
        marker = await self._marker(kind, cluster_id)
        entries, undecodable = await self._entries(kind, cluster_id, namespace)
        if undecodable:
            logger.error("objects in the inventory cannot be read", extra={"kind": kind, "count": undecodable})
        return Holdings(entries, marker, undecodable)

    async def _marker(self, kind: Kind, cluster_id: str) -> SyncMarker | None:
        try:
            marked = await self._reader.marker(kind)
        except BadEventError as error:
            logger.warning("the sync marker cannot be read", extra={"kind": kind, "error": str(error)})
            return None
        if marked is None:
            return None
        found, marker = marked
        self._require_ours(found, cluster_id)
        return marker

    async def _entries(self, kind: Kind, cluster_id: str, namespace: str) -> tuple[Entries, int]:
        entries = Entries()
        undecodable = 0
        async with aclosing(self._reader.last_events(kind, namespace, bodies=False)) as told:
            async for message in told:
                try:
                    event = decode(message.headers)
                    self._require_ours(event.cluster_id, cluster_id)
                    entries[event.key] = entry_of(event, message.sequence)
                except BadEventError as error:
                    undecodable += 1
                    fields = {"subject": message.subject, "error": str(error)}
                    logger.warning("an event in the inventory does not decode", extra=fields)
        return entries, undecodable

    def _require_ours(self, found: str, ours: str) -> None:
        if found != ours:
            name, token = self._subjects.cluster, f"{self._subjects.prefix}.{escape(self._subjects.cluster)}.>"
            raise RefusedToStartError(
                f"Under the cluster name {name} the broker holds events of the cluster {found}, and this is the "
                f"cluster {ours}: set CLUSTER_NAME to another one. If this cluster replaces that one for good, first "
                f"purge the subjects {token} of {self._stream} (the records of the old one are then left alone)."
            )


def entry_of(event: Event, sequence: int) -> Entry:
    """Return what the inventory keeps of an event at that place. Raises BadEventError when a delete has no time."""
    return Entry(
        uid=event.uid,
        epoch=event.epoch,
        resource_version=event.resource_version,
        digest=event.digest,
        models=event.models,
        deleted_at=_second(event.time) if event.type is EventType.DELETED else 0,
        sequence=sequence,
    )


def _second(time: str) -> int:
    """Return the Unix second of a time in RFC 3339."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError as error:
        raise BadEventError(f"header ce-time does not decode: {time[:80]!r}") from error
    if moment.tzinfo is None or moment.timestamp() < 1:
        raise BadEventError(f"header ce-time names no moment: {time[:80]!r}")
    return int(moment.timestamp())
