"""The inventory as the broker holds it: the last event of each object of a kind, and the kind's sync marker.

Both sides read it. The producer compares it with what the cluster says, and needs the headers only; the consumer's
sweep compares it with what the registry says, and needs the bodies, too.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy

from shared.broker_errors import translated
from shared.errors import UnreachableError
from shared.events import SyncMarker, decode_marker
from shared.objects import Kind
from shared.subjects import Subjects

_BATCH: Final = 1000  # of about 1.5 KB each without, 3 KB with bodies
_SILENCE_S: Final = 5.0
_CONSUMER_IDLE_S: Final = 60.0  # the server forgets a reader that died


class Told(msgspec.Struct, frozen=True):
    """The last event of an object, as it lies in the stream."""

    subject: str
    headers: dict[str, str]
    body: bytes
    sequence: int


class StreamState(msgspec.Struct, frozen=True):
    """Which stream it is, by the time of its creation, and its last sequence."""

    created: str
    last_sequence: int


class InventoryReader:
    """Reads the event stream of a cluster.

    Raises UnreachableError when the broker does not answer, PermanentError when it refuses.
    """

    def __init__(self, client: Client, jetstream: JetStreamContext, stream: str, subjects: Subjects) -> None:
        self._client = client
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = subjects

    async def state(self) -> StreamState:
        with translated(f"reading the stream {self._stream}"):
            info = await self._jetstream.stream_info(self._stream)
        return StreamState(str(info.created), info.state.last_seq)

    async def marker(self, kind: Kind) -> tuple[str, SyncMarker] | None:
        """Return the sync marker of a kind and the id of the cluster that it speaks for; None when there is none.

        Raises BadEventError for one that cannot be read. Asks the stream's leader: a replica may be behind.
        """
        with translated(f"reading the sync marker of {kind}"):
            try:
                message = await self._jetstream.get_msg(self._stream, subject=self._subjects.sync(kind))
            except nats.js.errors.NotFoundError:
                return None
        return decode_marker(message.headers, message.data or b"")

    async def last_events(self, kind: Kind, namespace: str = "", *, bodies: bool) -> AsyncGenerator[Told, None]:
        """Yield the last event of each object of a kind, in one namespace or in all."""
        with translated(f"reading the inventory of {kind} from {self._stream}"):
            subjects = self._subjects.all_events(kind, namespace)
            async with self._reading(subjects, bodies=bodies) as messages, aclosing(messages):
                async for message in messages:
                    sequence = message.metadata.sequence.stream
                    yield Told(message.subject, message.headers or {}, message.data, sequence)

    @asynccontextmanager
    async def _reading(self, subjects: str, *, bodies: bool) -> AsyncIterator[AsyncGenerator[Msg, None]]:
        """Yield the last messages. Not through nats-py's `fetch`, which can wait although messages came."""
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(message: Msg) -> None:
            arrived.put_nowait(message)

        inbox = self._client.new_inbox()
        replies = await self._client.subscribe(inbox, cb=take)
        try:
            consumer = await self._jetstream.add_consumer(self._stream, _reader(subjects, bodies=bodies))
            yield self._messages(consumer, inbox, arrived)
            await self._jetstream.delete_consumer(self._stream, consumer.name)
        finally:
            await replies.unsubscribe()

    async def _messages(
        self, consumer: ConsumerInfo, inbox: str, arrived: "asyncio.Queue[Msg]"
    ) -> AsyncGenerator[Msg, None]:
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


def _reader(subjects: str, *, bodies: bool) -> ConsumerConfig:
    return ConsumerConfig(
        description="isvc-sync: reads the inventory",
        filter_subject=subjects,
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        headers_only=not bodies,
        inactive_threshold=_CONSUMER_IDLE_S,
        num_replicas=1,
        mem_storage=True,
    )


def _require_data(message: Msg) -> None:
    """Refuse a status message in place of a stored one: its reply subject is empty."""
    if not message.reply:
        status = (message.headers or {}).get("Status", "unknown")
        raise UnreachableError(f"reading the inventory was cut short by the broker (status {status})")
