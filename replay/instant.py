"""An event loop in which no time passes: what `planning.py` decides takes none. Pure.

Asyncio's own loop opens a pair of sockets to wake itself up. Here timers never ring, and the time is what the owner of
the loop says it is.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from replay.bareloop import BareLoop

T = TypeVar("T")
Args = TypeVarTuple("Args")


class InstantLoop(BareLoop):
    """Runs one coroutine at a time, also inside of a coroutine of another loop. `now_s` is set by its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns, or raise what it raises. It may wait for nothing but its own tasks."""
        with self.running():
            try:
                self._tasks = [task := self.create_task(work)]
                while not task.done():
                    self.ready.popleft()._run()  # noqa: SLF001 - a handle has no other way to run
            except BaseException:  # Ctrl-C, wherever it strikes
                self._end({*self._tasks, *asyncio.all_tasks(self)})
                work.close()  # it may not have become a task
                raise
            return task.result()

    def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        """End what has begun, and take its exceptions: nobody else will, and asyncio would complain of that."""
        for task in tasks:
            task.cancel()
        while self.ready:
            self.ready.popleft()._run()  # noqa: SLF001 - as above
        for task in tasks:
            if not task.done():  # its next step was lost when it was about to be taken
                task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - gather() does it, too
                task.get_coro().close()
            elif not task.cancelled():
                task.exception()
        self._tasks.clear()

    def time(self) -> float:
        return self.now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Return a timer that never rings: no time passes while somebody waits here."""
        return asyncio.TimerHandle(when, callback, args, self, context)

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
