"""How much we ask of one server at once, and what part of that is ours when several consumers share a registry.

The registry is fastest with 4 to 8 requests at once, half as fast at 64, and answers wrongly from 100 on: it has no
limit of its own on the connections to its database.
"""

import asyncio
from collections import deque
from typing import Final

from shared.errors import NotSentError

STALLED_S: Final = 1.0
"""When every place has been taken for so long, the registry hangs, and waiting for a place makes no sense. A good
registry answers within 0.1 s, even at its limit."""


class InFlightLimit:
    """At most so many requests at once, first come first served. The number follows the shards that we own.

    Nobody waits behind requests that get no answer: then entering raises NotSentError, at once or at latest after
    `STALLED_S`, so that what waits for this server does not occupy the worker. Nor does anybody wait where
    `waiting_max` do already. `of`: whose limit it is, for people.
    """

    def __init__(self, size: int, *, waiting_max: int | None = None, of: str = "the registry") -> None:
        self._size = max(1, size)
        self._waiting_max = waiting_max
        self._of = of
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken_at = 0.0  # when a place was last taken
        self._watchdog: asyncio.TimerHandle | None = None

    def resize(self, size: int) -> None:
        """Set the number (at least 1). What is in flight beyond it is not disturbed."""
        self._size = max(1, size)
        self._admit()

    async def __aenter__(self) -> None:
        if self._in_flight < self._size and not self._waiting:
            self._take()
            return
        if self._waiting_max is not None and len(self._waiting) >= self._waiting_max:
            raise NotSentError(f"not sent, {len(self._waiting)} requests to {self._of} wait", retry_after_s=STALLED_S)
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._watch()  # which sends us away at once where the registry hangs already
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiting.remove(place)
                self._admit()  # in this moment a place may have come free, and who came then waits behind us
            elif place.exception() is None:
                self._leave()  # given to us in the moment in which we were cancelled
            raise

    async def __aexit__(self, *raised: object) -> None:
        self._leave()

    def _take(self) -> None:
        self._in_flight += 1
        self._taken_at = asyncio.get_running_loop().time()

    def _leave(self) -> None:
        self._in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        """Hand free places to those who wait longest; who gets one is counted from now on."""
        for place in list(self._waiting):
            if self._in_flight >= self._size:
                return
            if not place.done():
                self._waiting.remove(place)
                self._take()
                place.set_result(None)

    def _watch(self) -> None:
        if self._watchdog is None:
            self._watchdog = asyncio.get_running_loop().call_at(self._taken_at + STALLED_S, self._check)

    def _check(self) -> None:
        """Send everybody away who waits for a registry that hangs; look again later while it moves."""
        self._watchdog = None
        if not self._waiting:
            return
        if asyncio.get_running_loop().time() < self._taken_at + STALLED_S:  # the same sum as in `_watch`: no rounding
            self._watch()
            return
        for place in list(self._waiting):
            if not place.done():  # one that was cancelled removes itself
                self._waiting.remove(place)
                place.set_exception(self._stalled())

    def _stalled(self) -> NotSentError:
        sentence = f"not sent, {self._in_flight} requests to {self._of} have no answer for over {STALLED_S:.0f} s"
        return NotSentError(sentence, retry_after_s=STALLED_S)


def share(limit: int, *, owned: int, shards: int, members: int) -> int:
    """Return how many of the `limit` requests of all consumers are ours: by shards owned, at least 1.

    Rounded down, and leaving one for each other member: with the default of 4 and up to 4 members the sum stays within
    the limit, however the shards are spread. Each further member adds one.
    """
    return max(1, min(limit * owned // shards, limit - (members - 1)))
