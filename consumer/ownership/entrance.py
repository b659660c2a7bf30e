"""How a consumer joins the group: not beside another cluster's consumers, which would be given half of its shards.

Two clusters of one name on one broker share subjects, leases and durables. The event stream shows it at the start
(`require_own_cluster`), once it has an event; this shows it before. Whoever works already goes on, and of those who
come at the same time the first: the others refuse to start.
"""

import asyncio

from msgspec.structs import replace

from consumer.ownership.group import Attempts, Leases
from consumer.ownership.targets import Me, Seat, Sighting, foreign_among, sighted, stranger_among
from shared.errors import ConflictError, RefusedToStartError, TransientError


class Entrance:
    """The way into a group of so many shards, for one process."""

    def __init__(self, leases: Leases, me: Me, attempts: Attempts, shards: int) -> None:
        self.is_seated = False
        self._leases = leases
        self._me = me
        self._attempts = attempts
        self._shards = shards
        self._seen: dict[int, Sighting] = {}

    async def enter(self) -> None:
        """Become a member. Raises RefusedToStartError where another cluster's consumers are at work, or came first.

        TransientError while that is not clear, and the errors of the leases: then it may be called again.
        """
        seats = await self._leases.seats()
        own = self._own(seats)
        if own is None:
            self._give_way(seats, None)
            await self._heed_leases()
            await self._sit_down(seats)
            seats = await self._leases.seats()
            own = self._own(seats)
        if own is None:
            raise TransientError("our member record has run out before it could be read")
        self.is_seated = True
        if own.me.joining:
            self._give_way(seats, own.sequence)

    def _own(self, seats: tuple[Seat, ...]) -> Seat | None:
        return next((seat for seat in seats if seat.me.instance == self._me.instance), None)

    def _give_way(self, seats: tuple[Seat, ...], sequence: int | None) -> None:
        stranger = stranger_among(seats, self._me, sequence)
        if stranger is not None:
            raise _refusal(stranger.cluster_id, stranger.member, self._me)

    async def _heed_leases(self) -> None:
        """Wait for what may be another cluster's: the broker forgets its members when it is away for long."""
        await asyncio.gather(*(self._sight(shard) for shard in range(self._shards)))
        now = self._attempts.clock()
        found = foreign_among(self._seen, self._me, now)
        if found is None:
            return
        refusal = _refusal(found.lease.cluster_id, found.lease.member, self._me)
        if found.renewed:
            raise refusal
        raise TransientError(f"unless this is renewed within {found.until - now:.0f} s we go on: {refusal}")

    async def _sight(self, shard: int) -> None:
        lease, sequence = await self._leases.read(shard)
        self._seen[shard] = sighted(self._seen.get(shard), lease, sequence, self._attempts.clock())

    async def _sit_down(self, seats: tuple[Seat, ...]) -> None:
        """Write our member record, over a dead predecessor's of our name."""
        me, attempts = replace(self._me, joining=True), self._attempts
        expect = next((seat.sequence for seat in seats if seat.me.member == me.member), 0)
        try:
            await self._leases.join(me, attempts.lease_s, attempts.call_s, expect)
        except ConflictError as error:
            raise TransientError(f"somebody else says at this moment that they are {me.member}") from error
        self.is_seated = True


def _refusal(cluster_id: str, member: str, me: Me) -> RefusedToStartError:
    return RefusedToStartError(
        f"our cluster name is in use on this broker by cluster id {cluster_id}, whose consumer {member} runs; this is "
        f"{me.cluster_id}: choose another CLUSTER_NAME; or, if it was rebuilt, stop the former one's consumers"
    )
