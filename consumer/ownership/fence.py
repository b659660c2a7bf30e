"""The fence: which shards this process owns at this moment, asked right before every effect.

Below everything that acts. `shards.py` grants terms, renews and ends them; no task has to run for one to run out: a
process that was paused finds its clock beyond the fence when it wakes up, and starts nothing more.

Work belongs to the term in which it arrived. Whoever handles it does so inside `handling`, and what it calls, however
deep, is asked about that term: a shard that was lost and won back is another term, in which the message comes anew.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from consumer.delivery.work import Message
from consumer.ownership.suspicion import Suspicion
from consumer.ports import DeadLetters
from shared.errors import TransientError
from shared.objects import ObjectKey
from shared.subjects import shard_of


class Term:
    """One ownership of one shard, from its taking to its end. Times are those of the fence's clock.

    `sequence`: of the lease message that says so. `closing`: nothing new is begun in it. `over`: it has ended.
    `acquitted`: suspects that were handled in it without a death.
    """

    def __init__(self, shard: int, sequence: int, sent_at: float, valid_until: float, suspicion: Suspicion) -> None:
        self.shard = shard
        self.sequence = sequence
        self.sent_at = sent_at
        self.valid_until = valid_until
        self.suspicion = suspicion
        self.acquitted: set[int] = set()
        self.closing = False
        self.over = False


class _Handling:
    """One work at hand. `begun`: a request has been sent for it."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.begun = False


_AT_HAND: Final[ContextVar[_Handling | None]] = ContextVar("the work at hand", default=None)


def term_at_hand() -> Term | None:
    """Return the term of the work that the calling task handles; None outside of that."""
    handling = _AT_HAND.get()
    return None if handling is None else handling.term


class Fence:
    """The terms of this process, one for each owned shard.

    `clock`: monotonic seconds; it must go on while the process, and if possible the machine, is suspended.
    """

    def __init__(self, shards: int, clock: Callable[[], float]) -> None:
        self.shards = shards
        self.clock = clock
        self._terms: dict[int, Term] = {}

    @property
    def owned(self) -> frozenset[int]:
        """The shards that we may act on, or could until a moment ago."""
        return frozenset(self._terms)

    def owns(self, shard: int) -> bool:
        """Whether an effect on the shard may begin at this moment."""
        return self.holds(self._terms.get(shard))

    def left_s(self, shard: int) -> float:
        """Return for how many seconds the shard will be ours if nothing is renewed; 0.0 where it is not."""
        term = self._terms.get(shard)
        return 0.0 if term is None else max(0.0, term.valid_until - self.clock())

    def term(self, shard: int) -> Term | None:
        return self._terms.get(shard)

    def term_of(self, key: ObjectKey) -> Term | None:
        return self._terms.get(shard_of(key, self.shards))

    def holds(self, term: Term | None) -> bool:
        """Whether a term lasts."""
        return term is not None and self._terms.get(term.shard) is term and self.clock() < term.valid_until

    def grant(self, term: Term) -> None:
        self._terms[term.shard] = term

    def withdraw(self, term: Term) -> None:
        """End a term: from now on nothing happens in its name."""
        if self._terms.get(term.shard) is term:
            del self._terms[term.shard]
        term.over = True

    @contextmanager
    def handling(self, term: Term) -> Iterator[None]:
        """Handle work of a term: the questions below, of this task, are about that."""
        token = _AT_HAND.set(_Handling(term))
        try:
            yield
        finally:
            _AT_HAND.reset(token)

    def check(self, key: ObjectKey) -> None:
        """Return if an effect on the object may begin now. Raises TransientError when its shard is no longer ours."""
        self.check_term(term_at_hand() or self.term_of(key), key)

    def check_term(self, term: Term | None, what: object) -> None:
        if not self.holds(term):
            raise TransientError(f"{what}: nothing more is done about it here, its shard is no longer ours")

    def budget_s(self) -> float:
        """Return the seconds in which an effect of the work at hand may happen; `inf` when no work is at hand.

        Asked before each request. When the shard is being given away, work that has sent none yet sends none any more:
        whatever waits for a place at a busy registry would hold up the next owner.
        """
        handling = _AT_HAND.get()
        if handling is None:
            return math.inf
        term = handling.term
        if not self.holds(term) or (term.closing and not handling.begun):
            return 0.0
        handling.begun = True
        return term.valid_until - self.clock()


class FencedDeadLetters:
    """The port `DeadLetters`, for as long as the object's shard is ours."""

    def __init__(self, dead_letters: DeadLetters, fence: Fence) -> None:
        self._dead_letters = dead_letters
        self._fence = fence

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        self._fence.check(key)
        await self._dead_letters.bury(key, headers, body, reason)

    def holds(self, key: ObjectKey) -> bool:
        return self._dead_letters.holds(key)

    async def clear(self, key: ObjectKey) -> None:
        self._fence.check(key)
        await self._dead_letters.clear(key)


class Held:
    """A message that belongs to a term: it is answered only while that lasts. Implements `work.Message`."""

    def __init__(self, message: Message, term: Term, fence: Fence) -> None:
        self._message = message
        self._term = term
        self._fence = fence

    @property
    def subject(self) -> str:
        return self._message.subject

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def sequence(self) -> int:
        return self._message.sequence

    @property
    def num_delivered(self) -> int:
        return self._message.num_delivered

    @property
    def provenance(self) -> dict[str, str]:
        return self._message.provenance

    def require(self) -> None:
        """Raise TransientError when the term has ended."""
        self._fence.check_term(self._term, f"message {self.sequence}")

    async def ack(self) -> None:
        self.require()
        await self._message.ack()

    async def in_progress(self) -> None:
        if self._fence.holds(self._term):  # else it is not in our hands
            await self._message.in_progress()

    async def terminate(self, reason: str) -> None:
        self.require()
        await self._message.terminate(reason)
