"""Runs the work queue: takes messages in, handles them side by side, keeps what it holds alive.

One for the process, whatever number of shards it owns. The queue decides the order, this loop only carries it out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from consumer.verdict import Retry, Verdict
from consumer.work import Work, look_later
from consumer.workqueue import WorkQueue
from shared.errors import TransientError
from shared.objects import ObjectKey

logger = logging.getLogger(__name__)

AT_HAND_MAX: Final = 64  # objects handled side by side; the registry has a smaller limit of its own


class Worker:
    """Handles messages, each object's one after the other. Times are those of the running event loop."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_HAND_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self, work: Work) -> None:
        """Take a message in; what it makes superfluous is acknowledged."""
        for superseded in self._queue.add(work, _now()):
            self._spawn(_acknowledge(superseded, work))
        self._wake.set()

    def look_again(self, key: ObjectKey, delay_s: float) -> None:
        """Look at the live object after `delay_s` seconds."""
        asyncio.get_running_loop().call_later(delay_s, lambda: self.offer(look_later(key)))

    def held(self) -> int:
        """Return the number of messages in hand."""
        return len(self._queue.held())

    async def run(self, handle: Callable[[Work], Awaitable[Verdict]]) -> None:
        """Handle messages until cancelled; `handle` settles them, all but a Retry."""
        while True:
            work = self._queue.next(_now())
            if work is None:
                await self._sleep()
                continue
            await self._slots.acquire()
            self._spawn(self._one(work, handle))

    async def keep_alive(self, every_s: float) -> None:
        """Tell the broker of everything in hand that it is in progress, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            for work in self._queue.held():
                try:
                    await work.message.in_progress()
                except TransientError:
                    break  # not connected: after the return everything is delivered anew

    async def drain(self, deadline_s: float) -> None:
        """Wait for what is at hand, for `deadline_s` seconds at most; the rest is delivered to the next owner."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=deadline_s)
        for task in self._tasks:
            task.cancel()

    async def _one(self, work: Work, handle: Callable[[Work], Awaitable[Verdict]]) -> None:
        try:
            decision = await handle(work)
        except TransientError as error:
            # Done, but the broker could not be told: it will deliver the message again, and find it done.
            logger.warning("could not settle", extra={"object": str(work.key), "reason": str(error)})
            self._queue.done(work, _now())
        else:
            if isinstance(decision, Retry):
                newer = self._queue.again(work, _now(), decision.delay_s)
                if newer is not None:
                    await _acknowledge(work, newer)
            else:
                self._queue.done(work, _now())
        finally:
            self._slots.release()
            self._wake.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sleep(self) -> None:
        wakes_at = self._queue.wakes_at()
        try:
            async with asyncio.timeout_at(wakes_at):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _acknowledge(superseded: Work, by: Work) -> None:
    """Acknowledge a message that a newer one in hand replaces; `by` is the message itself when that came earlier.

    Not when both are deliveries of one message: that acknowledgement would be the last word on it.
    """
    if superseded is not by and superseded.message.sequence == by.message.sequence:
        return
    try:
        await superseded.message.ack()
    except TransientError as error:
        logger.warning("could not settle", extra={"object": str(superseded.key), "reason": str(error)})
