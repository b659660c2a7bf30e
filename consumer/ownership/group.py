"""Who else consumes: says that this consumer lives, and sees who else does. `shards.py` acts on it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from consumer.ownership.targets import Lease, Me, Seat
from shared.errors import IsvcSyncError

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEAVE_S: Final = 1.0  # for the broker to take our farewell
_CALL_SHARE: Final = 0.75  # of the pause between two renewals: what hangs is given up before the next one is due


class Leases(Protocol):
    """What is written down of members and shards; `leases.py` has the real ones, and says what each does and raises."""

    async def join(self, me: Me, lease_s: float, timeout_s: float, expect: int | None = None) -> int: ...
    async def leave(self, me: Me) -> None: ...
    async def members(self, cluster_id: str = "") -> frozenset[str]: ...
    async def seats(self) -> tuple[Seat, ...]: ...
    async def read(self, shard: int) -> tuple[Lease, int]: ...
    async def write(self, shard: int, lease: Lease, expect: int, timeout_s: float) -> int: ...
    async def delivered(self, shard: int) -> int: ...


class Attempts:
    """Calls to the leases that may fail: tried again at the next round, and told now and then.

    `period_s`: between two renewals, a quarter of the lease. `call_s`: how long one call may take.
    """

    def __init__(self, lease_s: float, clock: Callable[[], float]) -> None:
        self.lease_s = lease_s
        self.period_s = lease_s / 4
        self.call_s = self.period_s * _CALL_SHARE
        self.clock = clock
        self.trouble = ""
        self._told_at = float("-inf")

    async def tried(self, work: Awaitable[T], within_s: float) -> T | None:
        """Return what `work` returns, None when it fails."""
        try:
            async with asyncio.timeout(within_s):
                return await work
        except TimeoutError:
            self.trouble = f"no answer within {within_s:.1f} s"
        except IsvcSyncError as error:
            self.trouble = str(error)
        if self.clock() - self._told_at >= self.lease_s:
            self._told_at = self.clock()
            logger.warning("a lease cannot be read or written", extra={"reason": self.trouble})
        return None


class Group:
    """The members, as they were last seen."""

    def __init__(self, leases: Leases, me: Me, attempts: Attempts) -> None:
        self.members: frozenset[str] = frozenset()
        self._leases = leases
        self._me = me
        self._attempts = attempts
        self._doubted_until = float("-inf")
        self._seen_at = float("-inf")

    def readiness(self) -> str | None:
        """Return None while the members can be seen; else what is missing. May be called from another thread."""
        if self._attempts.clock() - self._seen_at <= self._attempts.lease_s:
            return None
        trouble = self._attempts.trouble
        return "the group of consumers cannot be seen" + (f": {trouble}" if trouble else " yet")

    async def meet(self) -> bool:
        """Say that we live and see who else does; return whether that is news. Raises the errors of the leases."""
        attempts = self._attempts
        await self._leases.join(self._me, attempts.lease_s, attempts.call_s)
        members = await self._leases.members(self._me.cluster_id) | {self._me.member}
        if attempts.clock() < self._doubted_until:
            members |= self.members
        changed, self.members = members != self.members, members
        self._seen_at = attempts.clock()
        attempts.trouble = ""
        if changed:
            logger.info("the group has changed", extra={"members": sorted(members)})
        return changed

    async def meet_again(self) -> bool:
        """Do the same where it may fail."""
        changed = await self._attempts.tried(self.meet(), 2 * self._attempts.call_s)
        if changed is None:
            # The records of all members run out while the broker is away: let them come back before their shards move.
            self._doubted_until = self._attempts.clock() + 2 * self._attempts.period_s
        return bool(changed)

    async def leave(self) -> None:
        """Say that our shards are for others from now on, if that can be done at once."""
        await self._attempts.tried(self._leases.leave(self._me), LEAVE_S)
