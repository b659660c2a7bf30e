"""Our part of the requests in flight, and that nobody waits behind a registry that hangs. On a virtual clock."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from consumer.requests.inflight import STALLED_S, InFlightLimit, share
from shared.errors import NotSentError

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def held(limit: InFlightLimit, for_s: float) -> None:
    async with limit:
        await asyncio.sleep(for_s)


@asynccontextmanager
async def hanging_limit():
    """A limit of two, both places taken for ever. No fixture: those run on the real clock."""
    limit = InFlightLimit(2)
    tasks = [asyncio.create_task(held(limit, 3600.0)) for _ in range(2)]
    await asyncio.sleep(0)
    yield limit
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_whoever_waits_for_a_hanging_registry_is_sent_away_after_a_second():
    async with hanging_limit() as hanging:
        began = now()
        results = await asyncio.gather(*(held(hanging, 0.0) for _ in range(50)), return_exceptions=True)
        assert {type(result) for result in results} == {NotSentError}
        assert now() - began == pytest.approx(STALLED_S)


async def test_whoever_comes_later_is_sent_away_at_once():
    async with hanging_limit() as hanging:
        await asyncio.sleep(STALLED_S)
        began = now()
        with pytest.raises(NotSentError, match="2 requests to the registry have no answer") as raised:
            await held(hanging, 0.0)
        assert now() == began
        assert raised.value.retry_after_s == STALLED_S


async def test_a_place_that_comes_free_ends_the_stall():
    async with hanging_limit() as hanging:
        await asyncio.sleep(STALLED_S)
        hanging.resize(3)
        await held(hanging, 0.0)


async def test_a_slow_registry_that_moves_lets_everybody_wait():
    limit = InFlightLimit(1)
    began = now()
    await asyncio.gather(*(held(limit, STALLED_S * 0.9) for _ in range(20)))
    assert now() - began == pytest.approx(20 * STALLED_S * 0.9)


async def test_one_hanging_request_among_several_places_stalls_nothing():
    limit = InFlightLimit(2)
    hanging = asyncio.create_task(held(limit, 3600.0))
    await asyncio.gather(*(held(limit, 0.5) for _ in range(10)))
    hanging.cancel()


async def test_a_cancelled_wait_takes_no_place_and_disturbs_no_stall():
    async with hanging_limit() as hanging:
        waiting = [asyncio.create_task(held(hanging, 0.0)) for _ in range(3)]
        await asyncio.sleep(0.5)
        waiting[1].cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [NotSentError, asyncio.CancelledError, NotSentError]
        hanging.resize(3)
        await held(hanging, 0.0)


@pytest.mark.parametrize("before_s", [-1e-10, 0.0, 1e-10])
async def test_a_wait_that_is_cancelled_in_the_moment_of_the_stall_breaks_nothing(before_s):
    async with hanging_limit() as hanging:
        waiting = [asyncio.create_task(held(hanging, 0.0)) for _ in range(3)]
        await asyncio.sleep(0)
        stalls_at = hanging._watchdog.when()
        for task in waiting[::2]:
            asyncio.get_running_loop().call_at(stalls_at - before_s, task.cancel)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} <= {NotSentError, asyncio.CancelledError}
        hanging.resize(3)
        await held(hanging, 0.0)


@pytest.mark.parametrize("first", ["cancelled", "freed"])
async def test_a_wait_that_is_cancelled_as_its_place_comes_free_passes_the_place_on(first):
    limit = InFlightLimit(1)
    await limit.__aenter__()
    cancelled = asyncio.create_task(held(limit, 0.0))
    await asyncio.sleep(0)
    if first == "cancelled":
        cancelled.cancel()
        await limit.__aexit__()
    else:
        await limit.__aexit__()
        cancelled.cancel()
    began = now()
    await held(limit, 0.0)
    assert now() == began
    assert (await asyncio.gather(cancelled, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_a_limit_that_was_idle_for_long_does_not_count_as_stalled():
    limit = InFlightLimit(1)
    await held(limit, 0.0)
    await asyncio.sleep(100.0)
    await asyncio.gather(*(held(limit, 0.1) for _ in range(5)))


# --- shares ---


@pytest.mark.parametrize(
    ("owned", "members", "ours"),
    [(16, 1, 4), (8, 2, 2), (4, 4, 1), (12, 2, 3), (15, 2, 3), (16, 4, 1), (1, 16, 1), (0, 2, 1)],
)
def test_our_share_follows_the_shards(owned, members, ours):
    assert share(4, owned=owned, shards=16, members=members) == ours


@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_up_to_four_consumers_together_stay_within_the_default_limit_however_shards_are_spread(members):
    splits = (split for split in itertools.product(range(17), repeat=members) if sum(split) == 16)
    sums = {sum(share(4, owned=o, shards=16, members=members) for o in split if o) for split in splits}
    assert max(sums) == 4
