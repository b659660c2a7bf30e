"""Pulls under a lease: none outlasts it, and no consumer is reset that may be another's by now."""

import asyncio

import pytest

from consumer.delivery.pulls import PullSettings
from consumer.inbox import Durable, PullLoop
from tests.unit.consumer.delivery.pulls.played_broker import first_pull

pytestmark = pytest.mark.looptime


class Lease:
    """How long the shard will be ours."""

    def __init__(self, left_s):
        self.left_s = left_s

    def __call__(self):
        return self.left_s


@pytest.fixture
async def lease():
    return Lease(2.0)


@pytest.fixture
async def leased_loop(broker, lease, taken, stats):
    durable = Durable("S", "C", broker.ensure, PullSettings(batch=8, expires_s=1.0), lease)
    loop = PullLoop(broker, durable, taken.append, stats=stats)
    yield loop
    await loop.stop()


@pytest.mark.parametrize("left_s", [0.0, 0.99])
async def test_no_pull_leaves_that_could_outlast_our_lease(leased_loop, broker, lease, left_s):
    await first_pull(leased_loop, broker)
    lease.left_s = left_s
    await broker.says("408", **{"Nats-Pending-Messages": "8"})
    await asyncio.sleep(10)
    assert len(broker.pulls) == 1


async def test_a_pull_that_ends_with_our_lease_leaves(leased_loop, broker, lease):
    await first_pull(leased_loop, broker)
    lease.left_s = 1.0
    await broker.says("408", **{"Nats-Pending-Messages": "8"})
    assert [batch for _, batch in broker.pulls] == [8, 8]


async def test_a_lease_that_is_renewed_late_lets_a_full_batch_be_pulled(leased_loop, broker, lease):
    await first_pull(leased_loop, broker)
    lease.left_s = 0.5
    await broker.says("408", **{"Nats-Pending-Messages": "6"})
    lease.left_s = 2.0
    await asyncio.sleep(1.2)
    assert [batch for _, batch in broker.pulls] == [8, 8]


async def test_a_consumer_that_may_be_anothers_by_now_is_not_reset(leased_loop, broker, lease):
    await first_pull(leased_loop, broker)
    lease.left_s = 0.0
    broker.stats["reconnects"] += 1
    await asyncio.sleep(10)
    assert len(broker.resets) == 1
    lease.left_s = 2.0
    await asyncio.sleep(0.11)
    assert len(broker.resets) == 2
