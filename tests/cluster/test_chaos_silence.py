"""The API server falls silent for 90 s and wakes up: connections stay open and nothing answers."""

import asyncio
import time

import pytest

from shared.events import EventType
from shared.objects import Kind
from tests.cluster.chaos_world import chaos, installed
from tests.eventually import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

SILENCE_S = 90.0
INACTIVITY_S = 70.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with installed(tmp_path_factory.mktemp("chaos-silence")) as plane:
        yield plane


@pytest.fixture
async def world(plane, tmp_path):
    async with chaos(plane, tmp_path) as world:
        yield world


async def test_R10_ninety_seconds_of_silence_are_noticed_after_seventy_and_nothing_is_lost(world, record_property):
    gone: list[str] = []
    noticed_s = 0.0

    async def is_silent() -> bool:
        return all([await world.restarts("silent", kind) for kind in Kind])

    async def fault():
        nonlocal noticed_s
        began = time.monotonic()
        world.plane.pause()
        try:
            gone.extend(await world.vanish(3))
            await eventually(is_silent, "the producer has given up both watches", SILENCE_S)
            noticed_s = time.monotonic() - began
            assert not await world.producer.is_ready(), "it says that it follows nothing"
            await asyncio.sleep(SILENCE_S - noticed_s)
        finally:
            world.plane.resume()

    took_s = await world.survive(fault)
    figures = f"noticed after {noticed_s:.1f} s; right again {took_s:.1f} s after the end"
    record_property("figures", f"{figures}; {await world.all_restarts()}")
    assert INACTIVITY_S - 5 < noticed_s < INACTIVITY_S + 5
    assert {world.stream.last_of[uid].type for uid in gone} == {EventType.DELETED}
    assert await world.tombstones_of_the_living() == []
