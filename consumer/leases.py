"""The leases on the broker: stream ISVC_LEASE, one message for each shard and each member.

    <prefix>.<cluster>.lease.shard.<n>       who owns a shard (`ownership.Lease` as JSON); never expires by itself
    <prefix>.<cluster>.lease.member.<id>     a living consumer; the server drops it when it is not renewed

A write replaces exactly the message that its writer has read (`Nats-Expected-Last-Subject-Sequence`), so of two who
want the same only one gets it. Leases are read from the stream's leader, never from a replica.

A shard's lease outlives its owner on purpose: it holds what the successor must know of the owner's death, and whether
it has run out is for the readers to see (`ownership.py`). Members need no such care: what they say decides only for
whom a shard is meant.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import Header

from consumer.ownership import Lease, Me
from shared.broker import Broker
from shared.broker_errors import translated
from shared.decoding import UNDECODABLE
from shared.errors import ConflictError, TransientError
from shared.subjects import Subjects, escape, unescape

logger = logging.getLogger(__name__)

_WRONG_LAST_SEQUENCE: Final = 10071
_DECODER: Final = msgspec.json.Decoder(Lease)
NOBODY: Final = Lease()


class LeaseStream:
    """The port `group.Leases`. Everything raises TransientError or PermanentError; a write raises ConflictError, too.

    `events` is the event stream, whose consumers know what was delivered.
    """

    def __init__(self, broker: Broker, subjects: Subjects, stream: str, events: str) -> None:
        self._broker = broker
        self._subjects = subjects
        self._stream = stream
        self._events = events
        self._shards = f"{subjects.prefix}.{escape(subjects.cluster)}.lease.shard"
        self._members = f"{subjects.prefix}.{escape(subjects.cluster)}.lease.member"
        self._known: frozenset[str] = frozenset()

    async def join(self, me: Me, lease_s: float, timeout_s: float) -> None:
        """Say that we live, for as long as the lease lasts."""
        with translated("writing our member record"):
            await self._broker.jetstream.publish(
                f"{self._members}.{escape(me.member)}",
                msgspec.json.encode(me),
                stream=self._stream,
                msg_ttl=math.ceil(lease_s),
                timeout=timeout_s,
            )

    async def leave(self, me: Me) -> None:
        with translated("removing our member record"):
            await self._broker.jetstream.purge_stream(self._stream, subject=f"{self._members}.{escape(me.member)}")

    async def members(self) -> frozenset[str]:
        """Return the living members."""
        with translated("reading the members"):
            info = await self._broker.jetstream.stream_info(self._stream, subjects_filter=f"{self._members}.*")
        self._known = frozenset(info.state.subjects or ())
        return frozenset(unescape(subject.rpartition(".")[2]) for subject in self._known)

    async def read(self, shard: int) -> tuple[Lease, int]:
        """Return the lease of a shard with its sequence; a free one and 0 when there is none."""
        with translated(f"reading the lease of shard {shard}"):
            try:
                message = await self._broker.jetstream.get_msg(self._stream, subject=f"{self._shards}.{shard}")
            except nats.js.errors.NotFoundError:
                return NOBODY, 0
        return _decoded(message.data or b"", shard), message.seq or 0

    async def write(self, shard: int, lease: Lease, expect: int, timeout_s: float) -> int:
        """Replace message `expect` of a shard; return the new one's sequence.

        Raises ConflictError when another message stands there.
        """
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(expect)}
        with translated(f"writing the lease of shard {shard}"):
            try:
                ack = await self._broker.jetstream.publish(
                    f"{self._shards}.{shard}",
                    msgspec.json.encode(lease),
                    stream=self._stream,
                    headers=headers,
                    timeout=timeout_s,
                )
            except nats.js.errors.BadRequestError as error:
                if error.err_code != _WRONG_LAST_SEQUENCE:
                    raise
                raise ConflictError(f"the lease of shard {shard} was written by another one") from error
        return ack.seq

    async def delivered(self, shard: int) -> int:
        """Return up to where the messages of a shard were delivered to anybody; 0 when they never were."""
        with translated(f"reading the consumer of shard {shard}"):
            try:
                info = await self._broker.jetstream.consumer_info(self._events, self._subjects.durable(shard))
            except nats.js.errors.NotFoundError:
                return 0
        return info.delivered.stream_seq if info.delivered is not None else 0

    async def watch(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `on_change` when a shard becomes free or a new member speaks up; return what ends that.

        A hint, so that nobody waits for the next look; it may be lost, and what it says is not believed.
        """

        async def hint(message: Msg) -> None:
            is_member = message.subject.startswith(self._members)
            if message.subject not in self._known if is_member else b'"member"' not in message.data:
                on_change()

        subject = self._shards.removesuffix("shard") + ">"
        with translated("watching the leases"):
            subscription = await self._broker.client.subscribe(subject, cb=hint)

        async def end() -> None:
            try:
                await subscription.unsubscribe()
            except nats.errors.Error as error:
                logger.debug("the watch of the leases ended before", extra={"error": str(error)})

        return end


def _decoded(body: bytes, what: object) -> Lease:
    """Return a lease as it was written. Raises TransientError when somebody else has written it."""
    try:
        return _DECODER.decode(body)
    except UNDECODABLE as error:
        raise TransientError(f"the lease of {what} does not decode ({error}): purge its subject") from error
