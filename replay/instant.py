"""An event loop without sockets, threads or a clock: what `planning.py` decides takes no time. Pure.

Asyncio's own loop opens a pair of sockets to wake itself up. Here everything is in the order in which it was scheduled,
timers never ring, and the time is what its owner says it is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Args = TypeVarTuple("Args")


class InstantLoop(asyncio.AbstractEventLoop):
    """Runs one coroutine at a time, also inside of a coroutine of another loop. `now_s` is set by its owner."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ready: deque[asyncio.Handle] = deque()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns, or raise what it raises. It may wait for nothing but its own tasks."""
        outer = asyncio._get_running_loop()  # noqa: SLF001 - "intended to be used by event loops", says its documentation
        asyncio._set_running_loop(self)  # noqa: SLF001 - as the line above
        try:
            task = self.create_task(work)
            while not task.done():
                self._ready.popleft()._run()  # noqa: SLF001 - a handle has no other way to run
            return task.result()
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001 - as above, put back

    def time(self) -> float:
        return self.now_s

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Return a timer that never rings: no time passes while somebody waits here."""
        return asyncio.TimerHandle(when, callback, args, self, context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail: nobody waits for it, so this is a fault of the program."""
        raise RuntimeError(context["message"]) from context.get("exception")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: no timer rings here."""
