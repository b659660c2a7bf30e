"""The loop in which no time passes, and Ctrl-C: nothing of it is left that asyncio would complain of."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from replay.instant import InstantLoop


async def _in_the_task(_loop: InstantLoop) -> None:
    raise KeyboardInterrupt


async def _in_a_task_of_its_own(loop: InstantLoop) -> None:
    await loop.create_task(_in_the_task(loop))


async def _while_it_waits(loop: InstantLoop) -> None:
    def strike() -> None:
        raise KeyboardInterrupt

    loop.call_soon(strike)
    await loop.create_future()


async def _in_what_then_fails_otherwise(loop: InstantLoop) -> None:
    try:
        await _while_it_waits(loop)
    except asyncio.CancelledError as error:
        raise ValueError("there was more to do") from error


async def _before_its_next_step(loop: InstantLoop) -> None:
    def strike() -> None:
        loop.ready.clear()  # as the step is lost when it is struck between the queue and the task
        raise KeyboardInterrupt

    loop.call_soon(strike)
    await asyncio.sleep(0)


STRIKES = [_in_the_task, _in_a_task_of_its_own, _while_it_waits, _in_what_then_fails_otherwise, _before_its_next_step]


@pytest.fixture
def complaints(monkeypatch):
    """What Python can only write to standard error."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    return found


@pytest.mark.parametrize("strike", STRIKES)
def test_ctrl_c_leaves_no_task_that_asyncio_complains_of(strike: Callable[..., Coroutine[Any, Any, None]], complaints):
    loop = InstantLoop()
    with pytest.raises(KeyboardInterrupt):
        loop.run(strike(loop))
    gc.collect()
    assert complaints == []
    assert asyncio.all_tasks(loop) == set()


def test_ctrl_c_before_the_work_is_a_task_leaves_nothing_either(complaints, monkeypatch, recwarn):
    def strike(*_: Any, **__: Any) -> asyncio.Task[Any]:
        raise KeyboardInterrupt

    loop = InstantLoop()
    monkeypatch.setattr(loop, "create_task", strike)
    with pytest.raises(KeyboardInterrupt):
        loop.run(_in_the_task(loop))
    gc.collect()
    assert (complaints, list(recwarn)) == ([], [])


@pytest.mark.parametrize("strike", STRIKES)
def test_after_ctrl_c_it_runs_something_else(strike):
    async def answer() -> int:
        return 7

    loop = InstantLoop()
    with pytest.raises(KeyboardInterrupt):
        loop.run(strike(loop))
    assert loop.run(answer()) == 7
