"""The leases on the broker: stream ISVC_LEASE, one message for each shard and each member.

    <prefix>.<cluster>.lease.shard.<n>       who owns a shard (`ownership.Lease` as JSON); never expires by itself
    <prefix>.<cluster>.lease.member.<id>     a living consumer; the server drops it when it is not renewed

A write replaces exactly the message that its writer has read (`Nats-Expected-Last-Subject-Sequence`), so of two who
want the same only one gets it. Leases are read from the stream's leader, never from a replica.

A shard's lease outlives its owner on purpose: it holds what the successor must know of the owner's death, and whether
it has run out is for the readers to see (`targets.py`). Members need no such care: what they say decides only for
whom a shard is meant, and, at a start, whether another cluster is here already.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import Header

from consumer.ownership.targets import Lease, Me, Seat
from shared.broker import Broker
from shared.broker_errors import translated
from shared.decoding import UNDECODABLE
from shared.errors import ConflictError, TransientError
from shared.subjects import Subjects, escape, unescape

logger = logging.getLogger(__name__)

_WRONG_LAST_SEQUENCE: Final = 10071
_DECODER: Final = msgspec.json.Decoder(Lease)
_MEMBER_DECODER: Final = msgspec.json.Decoder(Me)
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
        self._known: dict[str, Me] = {}  # a member's message changes only in ways that do not matter here

    async def join(self, me: Me, lease_s: float, timeout_s: float, expect: int | None = None) -> int:
        """Say that we live, for as long as the lease lasts; return the sequence of that.

        `expect` is the message that it replaces, 0 for none: ConflictError when another one stands there.
        """
        subject = f"{self._members}.{escape(me.member)}"
        with translated("writing our member record"):
            return await self._publish(subject, me, expect, timeout=timeout_s, msg_ttl=math.ceil(lease_s))

    async def leave(self, me: Me) -> None:
        with translated("removing our member record"):
            await self._broker.jetstream.purge_stream(self._stream, subject=f"{self._members}.{escape(me.member)}")

    async def members(self, cluster_id: str = "") -> frozenset[str]:
        """Return the living members: all, or those of a cluster and those who do not say of which they are."""
        subjects = await self._subjects_of_members()
        fresh = await asyncio.gather(*(self._seat(each) for each in subjects if each not in self._known))
        said = self._known | {subject: seat.me for subject, seat in fresh if seat is not None}
        self._known = {subject: me for subject, me in said.items() if subject in subjects}
        ours = (subject for subject, me in self._known.items() if not me.is_stranger_to(cluster_id))
        return frozenset(unescape(subject.rpartition(".")[2]) for subject in ours)

    async def seats(self) -> tuple[Seat, ...]:
        """Return the living members with what they say at this moment."""
        found = await asyncio.gather(*(self._seat(each) for each in await self._subjects_of_members()))
        return tuple(seat for _, seat in found if seat is not None)

    async def _subjects_of_members(self) -> frozenset[str]:
        with translated("reading the members"):
            info = await self._broker.jetstream.stream_info(self._stream, subjects_filter=f"{self._members}.*")
        return frozenset(info.state.subjects or ())

    async def _seat(self, subject: str) -> tuple[str, Seat | None]:
        """Return what a member says; None when it has left meanwhile."""
        with translated("reading a member"):
            try:
                message = await self._broker.jetstream.get_msg(self._stream, subject=subject)
            except nats.js.errors.NotFoundError:
                return subject, None
        return subject, Seat(_member(message.data or b"", subject), message.seq or 0)

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
        with translated(f"writing the lease of shard {shard}"):
            return await self._publish(f"{self._shards}.{shard}", lease, expect, timeout=timeout_s)

    async def _publish(self, subject: str, said: Me | Lease, expect: int | None, **options: Any) -> int:
        headers = None if expect is None else {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(expect)}
        try:
            ack = await self._broker.jetstream.publish(
                subject, msgspec.json.encode(said), stream=self._stream, headers=headers, **options
            )
        except nats.js.errors.BadRequestError as error:
            if error.err_code != _WRONG_LAST_SEQUENCE:
                raise
            raise ConflictError(f"{subject} was written by another one") from error
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


def _member(body: bytes, subject: str) -> Me:
    """Return what a member says. What does not decode is a member all the same, of nobody knows which cluster."""
    try:
        return _MEMBER_DECODER.decode(body)
    except UNDECODABLE:
        return Me(unescape(subject.rpartition(".")[2]), "")
