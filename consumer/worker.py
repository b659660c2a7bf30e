"""Runs the work queue: takes messages in, handles them side by side, keeps what it holds alive.

One for the process, whatever number of shards it owns. The queue decides the order, this loop only carries it out. Work
is handled in the term of its shard (`ownership/fence.py`) and dropped, without an answer, when that ends: the shard's
next owner is given it anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final

import msgspec

from consumer.delivery.work import Work, look_later
from consumer.delivery.workqueue import WorkQueue
from consumer.ownership.fence import Fence, Term
from consumer.ownership.suspects import Suspects
from consumer.verdict import Retry, Verdict
from shared import logs
from shared.errors import TransientError
from shared.objects import ObjectKey
from shared.subjects import shard_of

logger = logging.getLogger(__name__)

AT_HAND_MAX: Final = 64  # objects handled side by side; the registry has a smaller limit of its own
SUSPECT_RETRY_S: Final = 0.5  # before a suspect is tried that could not be named in its shard's lease

Handle = Callable[[Work], Awaitable[Verdict]]


class Custody(msgspec.Struct, frozen=True):
    """Whose the work is, and what it is suspected of."""

    fence: Fence
    suspects: Suspects


class Worker:
    """Handles messages, each object's one after the other. Times are those of the running event loop."""

    def __init__(self, queue: WorkQueue, custody: Custody) -> None:
        self._queue = queue
        self._fence = custody.fence
        self._suspects = custody.suspects
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_HAND_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_hand: dict[asyncio.Task[float | None], int] = {}  # the shard of each

    def offer(self, work: Work) -> None:
        """Take a message in, if its shard is ours; what it makes superfluous is acknowledged."""
        term = self._fence.term_of(work.key)
        if term is None or term.closing:
            return
        for superseded in self._queue.add(work, _now()):
            self._spawn(_acknowledge(superseded, work))
        self._wake.set()

    def look_again(self, key: ObjectKey, delay_s: float) -> None:
        """Look at the live object after `delay_s` seconds."""
        asyncio.get_running_loop().call_later(delay_s, lambda: self.offer(look_later(key)))

    def held(self) -> int:
        """Return the number of messages in hand."""
        return len(self._queue.held())

    def drop(self, shard: int) -> int:
        """Forget what waits of a shard, unanswered; return how many messages that were."""
        return self._queue.drop(lambda key: shard_of(key, self._fence.shards) == shard)

    async def finish(self, shard: int, deadline_s: float) -> None:
        """Wait until nothing of a shard is at hand; at the deadline, cancel what still is."""
        at_hand = {task for task, its_shard in self._at_hand.items() if its_shard == shard}
        if not at_hand:
            return
        _, late = await asyncio.wait(at_hand, timeout=deadline_s)
        for task in late:
            task.cancel()
        if late:
            logger.warning("work at hand was broken off", extra={"shard": shard, "messages": len(late)})
            await asyncio.wait(late)

    async def run(self, handle: Handle) -> None:
        """Handle messages until cancelled; `handle` settles them, all but a Retry."""
        while True:
            work = self._queue.next(_now())
            if work is None:
                await self._sleep()
                continue
            term = self._fence.term_of(work.key)
            if term is None or term.closing:
                self._queue.done(work, _now())
            elif self._suspects.is_suspect(term, work):
                self._begin(self._examine(term, work, handle), term, work)
            else:
                await self._slots.acquire()
                task = self._begin(self._one(term, work, handle), term, work)
                task.add_done_callback(lambda _: self._slots.release())

    async def keep_alive(self, every_s: float) -> None:
        """Tell the broker of everything in hand that it is in progress, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            for message in [each.message for work in self._queue.held() for each in (work, *work.passed)]:
                try:
                    await message.in_progress()
                except TransientError:
                    break  # not connected: after the return everything is delivered anew

    async def drain(self, deadline_s: float) -> None:
        """Wait for what is at hand, for `deadline_s` seconds at most; the rest is delivered to the next owner."""
        tasks = {*self._tasks, *self._at_hand}
        if tasks:
            await asyncio.wait(tasks, timeout=deadline_s)
        for task in (*self._tasks, *self._at_hand):
            task.cancel()

    async def _one(self, term: Term, work: Work, handle: Handle) -> float | None:
        """Handle a message; return in how many seconds it is to be tried again, None when it is done."""
        try:
            with self._fence.handling(term), logs.fields(**_about(work)):
                decision = await handle(work)
            for older in () if isinstance(decision, Retry) else work.passed:
                await _acknowledge_superseded(older)
        except TransientError as error:
            # Done, but the broker could not be told: it will deliver the message again, and find it done.
            logger.warning("could not settle", extra={"object": str(work.key), "reason": str(error)})
            return None
        return decision.delay_s if isinstance(decision, Retry) else None

    async def _examine(self, term: Term, work: Work, handle: Handle) -> float | None:
        """Handle a suspect when its turn has come; it takes no slot from others while it waits."""
        try:
            async with self._suspects.examining(term, work), self._slots:
                if work.burial and work.passed:
                    return 0.0  # those whose place it took have killed nobody: they come first
                return await self._one(term, work, handle)
        except TransientError as error:
            logger.warning("a suspect must wait", extra={"object": str(work.key), "reason": str(error)})
            return SUSPECT_RETRY_S

    def _begin(
        self, handling: Coroutine[None, None, float | None], term: Term, work: Work
    ) -> asyncio.Task[float | None]:
        task = asyncio.create_task(handling)
        self._at_hand[task] = term.shard
        task.add_done_callback(partial(self._end, term, work))
        return task

    def _end(self, term: Term, work: Work, task: asyncio.Task[float | None]) -> None:
        """Put the message down, or schedule its next try. A callback: a task that is cancelled early runs no code."""
        del self._at_hand[task]
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a message was not handled", extra={"object": str(work.key)}, exc_info=task.exception())
        delay_s = None if task.cancelled() or task.exception() is not None else task.result()
        if delay_s is None or term.closing or not self._fence.holds(term):
            self._queue.done(work, _now())
            return
        newer = self._queue.again(work, _now(), delay_s)
        if newer is not None:
            self._spawn(_acknowledge(work, newer))

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


def _about(work: Work) -> dict[str, object]:
    """Return what every line that is logged meanwhile tells."""
    found: dict[str, object] = {"object": str(work.key), "sequence": work.message.sequence, "attempt": work.attempt}
    if work.is_look:
        found["look"] = True
    elif work.seen is not None:
        found["resource_version"] = work.seen.freshness.resource_version
    return found


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _acknowledge(superseded: Work, by: Work) -> None:
    """Acknowledge a message that a newer one in hand replaces; `by` is the message itself when that came earlier.

    Not when both are deliveries of one message: that acknowledgement would be the last word on it.
    """
    if superseded is not by and superseded.message.sequence == by.message.sequence:
        return
    try:
        await _acknowledge_superseded(superseded)
    except TransientError as error:
        logger.warning("could not settle", extra={"object": str(superseded.key), "reason": str(error)})


async def _acknowledge_superseded(work: Work) -> None:
    await work.message.ack()
    logger.debug("acknowledged", extra=_about(work) | {"reason": "a newer state was handled in its place"})
