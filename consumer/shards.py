"""Keeps this process's share of the shards: takes, renews, gives away, as `ownership/targets.py` decides.

One consumer among any number. Each says that it lives, sees who else does, and so knows for whom each shard is meant.
It takes what is meant for it and free or run out, and gives away, in order, what is meant for another one.

Guarantees: the term of one process has ended (`ownership/fence.py`) before that of another one for the same shard
begins, whatever is paused, lost or late; nothing has to run for that. A process that cannot reach the broker loses its
shards.
Assumptions: monotonic clocks that run alike within a fifth of a lease. `Me.member` is unlike any living process's.
Caveat: a request that is on the wire when its process is frozen may land after the fence; see docs/ownership.md.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from consumer.ownership.entrance import Entrance
from consumer.ownership.fence import Fence, Term
from consumer.ownership.group import Attempts, Group, Leases
from consumer.ownership.suspicion import Suspicion
from consumer.ownership.targets import (
    GiveBack,
    Lease,
    Me,
    Sighting,
    Take,
    Wait,
    decide,
    sighted,
    target,
    valid_until,
)
from shared.errors import ConflictError, TransientError

logger = logging.getLogger(__name__)

_PAUSE_S_MIN: Final = 0.02  # between two rounds, however many hints come


class Duty(Protocol):
    """What there is to do with a shard while it is ours."""

    def begin(self, term: Term) -> None:
        """Start working; returns at once."""

    async def end(self, term: Term) -> None:
        """Stop in order: begin nothing, finish what is at hand, within seconds; the term still lasts."""

    def lost(self, term: Term) -> None:
        """Stop at once: the term has ended. Drop what waits; nobody may be told anything."""


class Hooks(Struct, frozen=True):
    """Ears for the metrics.

    `on_owned`: how many shards are owned now, and how many members there are. `on_taken`: a shard was taken, cleanly or
    not. `on_lost`: a term ended that was not given away, and why.
    """

    on_owned: Callable[[int, int], None]
    on_taken: Callable[[bool], None]
    on_lost: Callable[[str], None]


class Shards:
    """The shards of this process. `lease_s`: how long a lease lasts without renewal; it is renewed every quarter."""

    def __init__(self, fence: Fence, leases: Leases, me: Me, lease_s: float, hooks: Hooks) -> None:
        self._fence = fence
        self._leases = leases
        self._me = me
        self._attempts = Attempts(lease_s, fence.clock)
        self._group = Group(leases, me, self._attempts)
        self._entrance = Entrance(leases, me, self._attempts, fence.shards)
        self._hooks = hooks
        self._clock = fence.clock
        self._seen: dict[int, Sighting] = {}
        self._locks = [asyncio.Lock() for _ in range(fence.shards)]
        self._giving: dict[int, asyncio.Task[None]] = {}
        self._kicked = asyncio.Event()
        self._wake_at = float("inf")
        self._leaving = False
        self._duty: Duty | None = None

    def kick(self) -> None:
        """Look at once: something has changed."""
        self._kicked.set()

    def readiness(self) -> str | None:
        """Return None while the group can be seen, with or without shards for us; else what is missing."""
        return self._group.readiness()

    async def start(self, duty: Duty) -> None:
        """Join, and take what is free. Raises what `Entrance.enter` does; after a TransientError, try again."""
        self._duty = duty
        await self._entrance.enter()
        await self._group.meet()
        await self._tend_all()

    async def run(self) -> None:
        """Keep the share until cancelled; `leave` must follow."""
        began_at = self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                next_at = min(began_at + self._attempts.period_s, self._wake_at)
                async with asyncio.timeout(max(0.0, next_at - self._clock())):
                    await self._kicked.wait()
            await asyncio.sleep(_PAUSE_S_MIN)
            self._kicked.clear()
            began_at = self._clock()
            await asyncio.gather(self._look_around(), self._tend_all())

    async def leave(self) -> None:
        """Give all shards away in order, so that others take them at once."""
        self._leaving = True
        if self._entrance.is_seated:  # else the message of our name, if there is one, is another one's
            await self._group.leave()
        owned = [self._give(term) for shard in self._fence.owned if (term := self._fence.term(shard)) is not None]
        renewing = asyncio.create_task(self._renew_until_cancelled(), name="last renewals")
        try:
            if owned:
                await asyncio.wait(owned)
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        self._tell_owned()

    async def name(self, term: Term, sequence: int) -> None:
        """Write down that a suspect is about to be handled. Raises TransientError when that cannot be done."""
        term.suspicion = term.suspicion.naming(sequence)
        if not await self._renew(term):
            self.unname(term)
            raise TransientError(f"the suspect message {sequence} of shard {term.shard} cannot be named now")

    def unname(self, term: Term) -> None:
        """Note that a suspect is not handled after all; the next renewal says so."""
        term.suspicion = term.suspicion.after_life()

    async def acquit(self, term: Term, sequence: int) -> None:
        """Write down that a suspect was handled, and nobody died. Not being able to costs it one suspicion more."""
        term.suspicion = term.suspicion.acquitting(sequence)
        term.acquitted.add(sequence)
        await self._renew(term)

    async def _look_around(self) -> None:
        if await self._group.meet_again():
            self._kicked.set()

    async def _tend_all(self) -> None:
        self._wake_at = float("inf")
        await asyncio.gather(*(self._tend(shard) for shard in range(self._fence.shards)))
        self._tell_owned()

    async def _tend(self, shard: int) -> None:
        """Do what there is to do about a shard, once."""
        term = self._fence.term(shard)
        mine = not self._leaving and target(shard, self._group.members) == self._me.member
        if term is None:
            await self._attempts.tried(self._try_for(shard, mine=mine), 2 * self._attempts.call_s)
        elif not self._fence.holds(term):
            self._lose(term, "expired")
        else:
            if not mine:
                self._give(term)
            if self._clock() - term.sent_at >= self._attempts.call_s:
                await self._renew(term)

    async def _try_for(self, shard: int, *, mine: bool) -> bool:
        async with self._locks[shard]:
            lease, sequence = await self._leases.read(shard)
            seen = self._seen[shard] = sighted(self._seen.get(shard), lease, sequence, self._clock())
            match decide(seen, self._me, mine=mine, now=self._clock()):
                case Take() as decision:
                    await self._take(shard, seen, decision)
                case GiveBack(expect, suspicion):
                    await self._leases.write(shard, Lease(suspicion=suspicion), expect, self._attempts.call_s)
                case Wait(_, until):
                    self._wake_at = min(self._wake_at, until)
        return True

    async def _take(self, shard: int, seen: Sighting, decision: Take) -> None:
        suspicion = decision.suspicion
        if not decision.clean:
            suspicion = suspicion.after_death(await self._leases.delivered(shard))
            _tell_of_death(shard, seen.lease)
        sent_at = self._clock()
        lease = self._lease(suspicion)
        sequence = await self._leases.write(shard, lease, decision.expect, self._attempts.call_s)
        self._seen[shard] = Sighting(lease, sequence, self._clock())
        term = Term(shard, sequence, sent_at, valid_until(sent_at, self._attempts.lease_s), suspicion)
        if self._clock() >= term.valid_until:
            return  # the answer came too late: the next look finds it in our name
        self._fence.grant(term)
        self._hooks.on_taken(decision.clean)
        logger.info("a shard is ours", extra={"shard": shard})
        assert self._duty is not None, "there is a duty from the start on"
        self._duty.begin(term)

    def _lease(self, suspicion: Suspicion) -> Lease:
        return Lease(self._me.member, self._me.instance, self._attempts.lease_s, suspicion, self._me.cluster_id)

    async def _renew(self, term: Term) -> bool:
        """Write the term's lease again; return whether that was done in time."""
        async with self._locks[term.shard]:
            return bool(await self._attempts.tried(self._rewrite(term), 2 * self._attempts.call_s))

    async def _rewrite(self, term: Term) -> bool:
        if not self._fence.holds(term):
            return False
        sent_at, lease = self._clock(), self._lease(term.suspicion)
        if not await self._replace(term, lease):
            return False
        if not self._fence.holds(term):
            # It ran out on the way. What came in between was not taken: only a new term, with its reset, brings it.
            self._lose(term, "expired")
            return False
        term.sent_at = sent_at
        term.valid_until = max(term.valid_until, valid_until(sent_at, self._attempts.lease_s))
        return True

    async def _replace(self, term: Term, lease: Lease) -> bool:
        """Write over the term's message. When another one stands there, it may be ours, from a lost answer."""
        try:
            term.sequence = await self._leases.write(term.shard, lease, term.sequence, self._attempts.call_s)
        except ConflictError:
            found, sequence = await self._leases.read(term.shard)
            if found.instance != self._me.instance or not found.member:
                self._lose(term, "taken")
                return False
            term.sequence = await self._leases.write(term.shard, lease, sequence, self._attempts.call_s)
        return True

    def _give(self, term: Term) -> asyncio.Task[None]:
        """Give a shard away, in a task of its own: what is at hand may take seconds, and is renewed meanwhile."""
        running = self._giving.get(term.shard)
        if running is None:
            running = asyncio.create_task(self._give_away(term), name=f"giving away shard {term.shard}")
            self._giving[term.shard] = running
            running.add_done_callback(lambda task: self._given(term, task))
        return running

    def _given(self, term: Term, task: asyncio.Task[None]) -> None:
        del self._giving[term.shard]
        if not task.cancelled() and task.exception() is not None:
            logger.error("a shard could not be given away", extra={"shard": term.shard}, exc_info=task.exception())
            self._lose(term, "failed")

    async def _give_away(self, term: Term) -> None:
        assert self._duty is not None, "what is given away was begun"
        term.closing = True
        await self._duty.end(term)
        async with self._locks[term.shard]:
            if not self._fence.holds(term):
                self._lose(term, "expired")
                return
            self._fence.withdraw(term)
            freed = self._replace(term, Lease(suspicion=term.suspicion.after_life()))
            if await self._attempts.tried(freed, self._attempts.call_s):
                logger.info("a shard is given away", extra={"shard": term.shard})

    def _lose(self, term: Term, why: str) -> None:
        if self._fence.term(term.shard) is not term:
            return
        self._fence.withdraw(term)
        self._hooks.on_lost(why)
        logger.warning("a shard is lost", extra={"shard": term.shard, "why": why})
        assert self._duty is not None, "what is lost was begun"
        self._duty.lost(term)

    def _tell_owned(self) -> None:
        self._hooks.on_owned(len(self._fence.owned), max(1, len(self._group.members)))

    async def _renew_until_cancelled(self) -> None:
        while True:
            await asyncio.sleep(self._attempts.period_s)
            await self._tend_all()


def _tell_of_death(shard: int, lease: Lease) -> None:
    at_hand = lease.suspicion.at_hand
    fields: dict[str, object] = {"shard": shard, "owner": lease.member}
    if at_hand:
        fields |= {"message_at_hand": at_hand, "deaths": lease.suspicion.deaths_of(at_hand) + 1}
    logger.warning("the owner of a shard died", extra=fields)
