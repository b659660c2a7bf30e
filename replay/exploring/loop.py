"""An event loop without a world behind it: real tasks, locks and timers on a clock that jumps to the next timer. Pure.

The consumer's shell runs in it unchanged, for `exploring.py` and for the simulation in the tests. It is a tenth of
asyncio's own loop, and so fast enough for thousands of histories; everything is in the order in which it was scheduled,
so that a history is the same each time.
"""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

from replay.bareloop import BareLoop

T = TypeVar("T")
Args = TypeVarTuple("Args")
OWNER: ContextVar[object] = ContextVar("owner", default=None)
"""The process in which a task is born."""


class VirtualLoop(BareLoop):
    """`broken` is what nobody waited for and failed: an exception in a callback or in a task."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ticket = count()
        self._tasks: dict[object, dict[asyncio.Task[Any], None]] = {}  # by owner, in the order of their birth

    def time(self) -> float:
        return self._now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._ticket), handle))
        return handle

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        tasks = self._tasks.setdefault(OWNER.get(), {})
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
        return task

    def cancel(self, owner: object) -> None:
        """End every task of a process at its present await, as nearly as a kill can be played."""
        for task in list(self._tasks.pop(owner, {})):
            task.cancel()

    def cancel_all(self) -> None:
        """End everything, so that no task outlives its loop."""
        self._timers.clear()
        for owner in list(self._tasks):
            self.cancel(owner)
        self.run_for(0.0)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.broken.append(f"{context['message']}: {context.get('exception')!r}")

    def run_for(self, seconds: float) -> None:
        """Do everything that falls due within so much time."""
        until_s = self._now_s + seconds
        with self.running():
            while True:
                while self.ready:
                    handle = self.ready.popleft()
                    if not handle.cancelled():
                        handle._run()  # noqa: SLF001 - a handle has no other way to run
                if not self._timers or self._timers[0][0] > until_s:
                    break
                when_s, _, timer = heapq.heappop(self._timers)
                self._now_s = max(self._now_s, when_s)
                if not timer.cancelled():
                    self.ready.append(timer)
        self._now_s = until_s
