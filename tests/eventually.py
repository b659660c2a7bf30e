"""Waiting for a condition instead of sleeping."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def eventually(condition: Callable[[], Any], what: str = "", within_s: float = 15.0) -> Any:
    """Poll a condition, which may be a coroutine function, until it holds; return what it returned then."""
    assert isinstance(what, str), "a time that took the place of the name would leave the default in force"
    seen: Any = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                seen = condition()
                if inspect.isawaitable(seen):
                    seen = await seen
                if seen:
                    return seen
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what or 'the condition'}: not within {within_s:g} s, last was {seen!r}") from None
