"""The stage that all targets share: events enter the replay's own stream, in its guise, as fast as they are read."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from replay.capture import Captured, Facts
from replay.target.choice import Guise, disguised
from replay.target.nats import Reading, ReplayStreams
from shared.errors import BadEventError, UnreachableError

logger = logging.getLogger(__name__)

EVENTS_AHEAD_MAX: Final = 32  # of one object; the stream keeps 64, and drops the oldest one unread
_POLL_S: Final = 0.1


class Around(msgspec.Struct, frozen=True):
    """What stands beside the stream.

    `learn`: gives a registry what it held before. `present`: has the cluster show what an event says, and returns the
    event as that cluster numbers it. `ended`: why nobody can read any more, "" while somebody can. `log`: the last line
    of the consumer's log, which nobody can read when the replay has ended; "" for a consumer of somebody else.
    """

    learn: Callable[[Facts], None] = lambda _: None
    present: Callable[[Captured], Captured] = lambda captured: captured
    ended: Callable[[], str] = lambda: ""
    log: Callable[[], str] = lambda: ""


class EventStage:
    """Implements `target_play.Stage`. `wait_s`: how long the readers may take for what they have not settled.

    `duplicates`: events that the broker dropped, as it would have then; `unreadable`: those that cannot be disguised.
    """

    def __init__(self, streams: ReplayStreams, guise: Guise, wait_s: float, around: Around = Around()) -> None:  # noqa: B008 - it is frozen
        self._streams = streams
        self._guise = guise
        self._wait_s = wait_s
        self._around = around
        self._ahead: Counter[str] = Counter()
        self.duplicates = 0
        self.unreadable = 0

    async def facts(self, facts: Facts) -> None:
        self._around.learn(facts)

    async def event(self, captured: Captured) -> None:
        """Let an event happen. Raises UnreachableError when the readers do not come after, or the broker is away."""
        try:
            shown = self._around.present(disguised(captured, self._guise))
        except BadEventError as error:
            logger.warning("an event cannot be replayed", extra={"seq": captured.position.seq, "reason": str(error)})
            self.unreadable += 1
            return
        self.duplicates += not await self._streams.publish(shown)
        key = str(captured.event.key)
        self._ahead[key] += 1
        if self._ahead[key] >= EVENTS_AHEAD_MAX:
            self._ahead.clear()
            if (await self._streams.reading()).consumers:
                await self.settled()

    async def settled(self) -> None:
        """Return when every event has been dealt with. Raises UnreachableError when that takes too long."""
        await self._until(lambda reading: not reading.unsettled, self._waits)

    async def read_by(self, consumers: int) -> None:
        """Return when so many consumers are set up to read. Raises UnreachableError when that takes too long."""
        await self._until(
            lambda reading: reading.consumers >= consumers and not reading.arriving,
            lambda: f"nobody has come to read {self._streams.names.events}; --keep publishes without waiting",
        )

    def _waits(self) -> str:
        last = self._around.log()
        look = f"; the last line of their consumer's log: {last}" if last else ", or see in its log what it waits for"
        return f"events are still under way: give --wait-s more{look}"

    async def _until(self, done: Callable[[Reading], bool], trouble: Callable[[], str]) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while not done(await self._streams.reading()):
                    if ended := self._around.ended():
                        raise UnreachableError(ended)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise UnreachableError(f"After {self._wait_s:g} s {trouble()}.") from error
