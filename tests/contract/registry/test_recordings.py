"""The sandbox's registry gives the answers that a real one gave: 311 recorded exchanges, one test for each case."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.registry import Options, serve
from tests.contract.registry.recorded_exchanges import exchanges, replay

CASES = list(dict.fromkeys(exchange["case"] for exchange in exchanges()))


@pytest.fixture(scope="module")
def differences() -> dict[str, list[str]]:
    """All cases in their order, once: they lean on each other. In a thread, so that no test's event loop is touched."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, replay_on_empty_registry()).result()


async def replay_on_empty_registry() -> dict[str, list[str]]:
    ticks = itertools.count(1_796_060_540_000)  # every read of the clock is a millisecond later: no two writes tie
    async with serve(Options(profile="v0.3.8", now_ms=lambda: next(ticks))) as server:
        return await replay(server)


def test_the_recording_is_complete():
    assert (len(exchanges()), len(CASES)) == (311, 58)


@pytest.mark.parametrize("case", CASES)
def test_answers_as_recorded(case, differences):
    assert differences[case] == []
