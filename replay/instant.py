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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns, or raise what it raises. It may wait for nothing but its own tasks."""
        with self.running():
            task = self.create_task(work)
            while not task.done():
                self.ready.popleft()._run()  # noqa: SLF001 - a handle has no other way to run
            return task.result()

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
