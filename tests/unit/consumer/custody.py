"""Who owns the shards in a test: this process, all of them, for as long as the test lets it."""

import math

from consumer.ownership.fence import Fence, Term
from consumer.ownership.suspects import Suspects
from consumer.ownership.suspicion import Suspicion
from consumer.worker import Custody

SHARDS = 16
INNOCENT = Suspicion()


def own(fence: Fence, shard: int, suspicion: Suspicion = INNOCENT, until: float = math.inf) -> Term:
    """Let the fence's process own a shard, from now on."""
    term = Term(shard, 1, -math.inf, until, suspicion)
    fence.grant(term)
    return term


class FakeLease:
    """Notes what a suspect goes through; implements `suspects.Witness`."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.failures: list[Exception] = []

    async def name(self, _term: Term, sequence: int) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.log.append(("named", sequence))

    def unname(self, _term: Term) -> None:
        self.log.append(("unnamed", 0))

    async def acquit(self, term: Term, sequence: int) -> None:
        self.log.append(("acquitted", sequence))
        term.acquitted.add(sequence)


def sole_owner(lease: FakeLease | None = None) -> Custody:
    fence = Fence(SHARDS, lambda: 0.0)
    for shard in range(SHARDS):
        own(fence, shard)
    return Custody(fence, Suspects(fence, lease or FakeLease()))
