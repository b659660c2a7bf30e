"""What the event loops here have in common: real tasks and futures, and no sockets, threads or clock behind them. Pure.

`instant.py`, in which no time passes, is for deciding; `exploring/loop.py`, whose clock jumps, for living through.
Everything is in the order in which it was scheduled.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack

Args = TypeVarTuple("Args")


class BareLoop(asyncio.AbstractEventLoop):
    """To be given `time`, `call_at`, `create_task`, `call_exception_handler`, and a way to run what is `ready`."""

    def __init__(self) -> None:
        self.ready: deque[asyncio.Handle] = deque()

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[[Unpack[Args]], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is passed over when its time comes."""

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """Be the running loop, for what is called from outside of it, also from within another loop."""
        outer = asyncio._get_running_loop()  # noqa: SLF001 - "intended to be used by event loops", says its documentation
        asyncio._set_running_loop(self)  # noqa: SLF001 - as the line above
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001 - as above, put back
