"""Running things side by side and ending them; used by both processes."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CANCEL_AGAIN_S: Final = 0.1


async def together(*works: Awaitable[Any]) -> None:
    """Run all until the first ends, then cancel the others and wait for them. Raises what the first raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def surely_cancelled(work: Awaitable[T]) -> T:
    """Await something that may swallow a cancellation, and be cancelled whenever that is wanted.

    nats-py's connect does, about once in twenty times (its `wait_for` on Python 3.11).
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    finally:
        await ended(task)
    return task.result()


async def ended(task: asyncio.Future[Any]) -> None:
    """End a task that may swallow a cancellation, and raise nothing of what it raises."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_S)
