"""Handles suspect messages one at a time, in the whole process: see `suspicion.py` for what makes a suspect.

Between the worker, which handles, and the lease, which remembers. One at a time over all shards, so that a death is
that of the one named. Messages that are not suspect go on beside it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from consumer.delivery.work import Work
from consumer.ownership.fence import Fence, Term
from consumer.ownership.suspicion import sentence
from shared.errors import TransientError


class Witness(Protocol):
    """Writes into the lease what happens to a suspect; `shards.Shards` does."""

    async def name(self, term: Term, sequence: int) -> None: ...
    def unname(self, term: Term) -> None: ...
    async def acquit(self, term: Term, sequence: int) -> None: ...


class Suspects:
    """Lets suspects through, one after the other."""

    def __init__(self, fence: Fence, witness: Witness) -> None:
        self._fence = fence
        self._witness = witness
        self._one = asyncio.Lock()

    @staticmethod
    def is_suspect(term: Term, work: Work) -> bool:
        sequence = work.message.sequence
        return term.suspicion.suspects(sequence) and sequence not in term.acquitted

    @asynccontextmanager
    async def examining(self, term: Term, work: Work) -> AsyncIterator[None]:
        """Wait for the turn of a suspect, then handle it inside. Too many deaths: it is to be buried untried.

        Raises TransientError when it cannot be named, or when its term has ended meanwhile.
        """
        sequence = work.message.sequence
        async with self._one:
            self._fence.check_term(term, work.key)
            if term.closing:
                raise TransientError(f"{work.key}: its shard is being given away")
            reason = sentence(term.suspicion, sequence)
            if reason:
                work.burial = reason
            else:
                await self._witness.name(term, sequence)
            handled = False
            try:
                yield
                handled = True
            finally:
                if not handled:  # it was broken off: it has killed nobody, and is not known to be harmless either
                    self._witness.unname(term)
            if not reason:  # a burial that has to wait is none, and nobody may try it meanwhile
                await self._witness.acquit(term, sequence)
