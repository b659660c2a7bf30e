"""Read the event stream from some place on, in its order: headers only, or whole messages, to an end or for ever.

Nothing is acknowledged and nobody is disturbed: each reading has a consumer of its own, which the server forgets.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from datetime import UTC
from typing import Final

import msgspec
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from replay.capture import Captured, Position
from replay.pacing import Bound
from replay.recording.core import First, Tell
from shared import events
from shared.broker import Broker
from shared.broker_errors import translated
from shared.errors import BadEventError, IsvcSyncError, UnreachableError
from shared.events import Event, EventType
from shared.inventory import InventoryReader
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects

_BATCH: Final = 500
_EXPIRES_S: Final = 2.0
_SILENCE_S: Final = 5.0  # longer than a pull lives
_TURN_S: Final = 0.25  # how soon an end is noticed
_AGAIN_S: Final = 0.5
_CONSUMER_IDLE_S: Final = 60.0  # the server forgets a reader that died
_AT_ONCE: Final = 32


class Stored(msgspec.Struct, frozen=True):
    """A message as it lies in the stream. `time`: when the broker stored it (RFC 3339)."""

    seq: int
    subject: str
    time: str
    headers: dict[str, str]
    body: bytes

    def captured(self, event: Event, *, initial: bool = False) -> Captured:
        trace = self.headers.get("traceparent", "")
        return Captured(event, self.body, Position(self.seq, self.subject, self.time), initial, trace)


class Surveyed(msgspec.Struct):
    """What a recording will find: sequences from `start` to `end`, both included; the last events before that.

    `before`: of objects that lived then, the place of their last event. `firsts`: by uid, what is captured first.
    """

    start: int
    end: int
    messages: int = 0
    before: dict[ObjectKey, Position] = {}
    firsts: dict[str, First] = {}
    namespaces: set[str] = set()
    cluster_id: str = ""

    def take(self, line: Captured) -> None:
        """Count an event that will be captured."""
        event = line.event
        self.start = self.start or line.position.seq
        self.messages += 1
        self.firsts.setdefault(event.uid, First.of(event, initial=event.type is not EventType.CREATED))
        self._name(event)

    def begin(self, before: dict[ObjectKey, Captured]) -> None:
        """Take the last events before the start."""
        self.start = self.start or self.end + 1
        for key, line in before.items():
            self._name(line.event)
            if line.event.type is not EventType.DELETED:
                self.before[key] = line.position
                self.firsts[line.event.uid] = First.of(line.event, initial=True)

    def _name(self, event: Event) -> None:
        self.namespaces.add(event.key.namespace)
        self.cluster_id = self.cluster_id or event.cluster_id


class StreamReader:
    """Reads the events on these subjects. `tell` takes a sentence for each interruption.

    Raises UnreachableError when the broker does not answer, PermanentError when it refuses.
    """

    def __init__(self, broker: Broker, stream: str, filters: tuple[str, ...], tell: Tell) -> None:
        self._broker = broker
        self._stream = stream
        self._filters = filters
        self._tell = tell

    async def last_sequence(self) -> int:
        with translated(f"reading the stream {self._stream}"):
            return int((await self._broker.jetstream.stream_info(self._stream)).state.last_seq)

    async def cluster_id(self, subjects: Subjects) -> str:
        """Return whose stream it is, by its sync markers; "" where it holds none."""
        reader = InventoryReader(self._broker.client, self._broker.jetstream, self._stream, subjects)
        for kind in Kind:
            try:
                found = await reader.marker(kind)
            except BadEventError:
                continue
            if found is not None:
                return found[0]
        return ""

    async def survey(self, since: Bound | None, until: Bound | None) -> Surveyed:
        """Read the headers of everything up to now, to know what there is; memory grows with objects only."""
        found = Surveyed(start=0, end=await self.last_sequence())
        before: dict[ObjectKey, Captured] = {}
        async with aclosing(self.read(1, bodies=False, end=found.end)) as messages:
            async for message in messages:
                try:
                    line = message.captured(events.decode(message.headers))
                except BadEventError:  # told when it is read
                    found.start = found.start or (message.seq if since is None else 0)
                    continue
                if until is not None and until.is_before(line):
                    found.end = message.seq - 1
                    break
                if since is not None and since.is_after(line):
                    before[line.event.key] = line
                else:
                    found.take(line)
        found.begin(before)
        return found

    async def initial(self, found: Surveyed) -> AsyncGenerator[Captured, None]:
        """Yield the last event before the start of each object that lived then, in the order of the stream."""
        places = sorted(found.before.values(), key=lambda place: place.seq)
        for number in range(0, len(places), _AT_ONCE):
            for line in await asyncio.gather(*map(self._at, places[number : number + _AT_ONCE])):
                if line is not None:
                    yield line

    async def read(
        self, start: int, *, bodies: bool, end: int | None = None, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[Stored, None]:
        """Yield messages from sequence `start` on: up to `end`, or for ever, until `stop`.

        For ever means that it survives what happens to the broker, and says so.
        """
        position = start
        while not (stop is not None and stop.is_set()) and (end is None or position <= end):
            try:
                async with AsyncExitStack() as stack:
                    source = await self._source(position, bodies=bodies, end=end, stack=stack)
                    async for message in source.messages(stop):
                        if end is not None and message.seq > end:
                            break
                        position = message.seq + 1
                        yield message
                    return  # all that was asked for
            except UnreachableError as error:
                if end is not None:
                    raise
                self._tell(f"The stream cannot be read, trying again: {error}.")
                await asyncio.sleep(_AGAIN_S)

    async def _at(self, place: Position) -> Captured | None:
        """Return the message at that place; None when it has left the stream meanwhile."""
        with translated(f"reading message {place.seq} of {self._stream}"):
            try:
                message = await self._broker.jetstream.get_msg(self._stream, place.seq, direct=True)
            except nats.js.errors.NotFoundError:
                return None
        stored = Stored(place.seq, place.subject, place.time, message.headers or {}, message.data or b"")
        try:
            return stored.captured(events.decode(stored.headers), initial=True)
        except BadEventError:
            return None

    async def _source(self, start: int, *, bodies: bool, end: int | None, stack: AsyncExitStack) -> "_Source":
        client = self._broker.client
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(message: Msg) -> None:
            arrived.put_nowait(message)

        with translated(f"reading the stream {self._stream}"):
            inbox = client.new_inbox()
            replies = await client.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
            stack.push_async_callback(replies.unsubscribe)
            consumer = await self._broker.jetstream.add_consumer(
                self._stream,
                ConsumerConfig(
                    description="isvc-sync: records the stream",
                    filter_subjects=list(self._filters),
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=max(1, start),
                    ack_policy=AckPolicy.NONE,
                    headers_only=not bodies,
                    inactive_threshold=_CONSUMER_IDLE_S,
                    num_replicas=1,
                    mem_storage=True,
                ),
            )
        source = _Source(self._broker, self._stream, consumer.name, inbox, arrived)
        source.pending = consumer.num_pending or 0
        source.endless = end is None
        stack.push_async_callback(source.close)
        return source


class _Source:
    """One consumer and the answers to its pulls. `pending`: what it has left; `endless`: go on when nothing is."""

    def __init__(self, broker: Broker, stream: str, name: str, inbox: str, arrived: "asyncio.Queue[Msg]") -> None:
        self._broker = broker
        self._stream = stream
        self._name = name
        self._inbox = inbox
        self._arrived = arrived
        self.pending = 0
        self.endless = False

    async def messages(self, stop: asyncio.Event | None) -> AsyncGenerator[Stored, None]:
        while self.pending > 0 or self.endless:
            wanted = _BATCH
            await self._pull(wanted)
            while wanted > 0:
                message = await self._next(stop)
                if message is None:
                    return  # stopped
                if not message.reply:
                    if (message.headers or {}).get("Status") not in {"404", "408"}:
                        raise UnreachableError(f"the broker ended a pull ({message.headers})")
                    await self._count()
                    break
                wanted -= 1
                stored = _stored(message)
                self.pending = message.metadata.num_pending
                yield stored
                if self.pending == 0 and not self.endless:
                    return

    async def close(self) -> None:
        """Let the server forget the consumer at once; it does so by itself, too."""
        try:
            with translated("ending a reading"):
                await self._broker.jetstream.delete_consumer(self._stream, self._name)
        except IsvcSyncError:
            return

    async def _pull(self, count: int) -> None:
        request = msgspec.json.encode({"batch": count, "expires": int(_EXPIRES_S * 1e9)})
        with translated(f"reading the stream {self._stream}"):
            await self._broker.client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}", request, reply=self._inbox
            )

    async def _next(self, stop: asyncio.Event | None) -> Msg | None:
        waited_s = 0.0
        while True:
            if stop is not None and stop.is_set():
                return None
            try:
                async with asyncio.timeout(_TURN_S):
                    return await self._arrived.get()
            except TimeoutError:
                waited_s += _TURN_S
            if waited_s >= _SILENCE_S:
                raise UnreachableError("JetStream fell silent")

    async def _count(self) -> None:
        with translated(f"reading the stream {self._stream}"):
            self.pending = (await self._broker.jetstream.consumer_info(self._stream, self._name)).num_pending or 0


def _stored(message: Msg) -> Stored:
    metadata = message.metadata
    time = metadata.timestamp.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return Stored(metadata.sequence.stream, message.subject, time, dict(message.headers or {}), message.data)
