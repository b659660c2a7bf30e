"""Messages that may have killed an owner: a worker handles them one at a time, and names each before."""

import asyncio

import pytest

from consumer.delivery.workqueue import WorkQueue
from consumer.ownership.suspicion import Suspicion
from consumer.verdict import Retry
from consumer.worker import AT_HAND_MAX, Worker
from shared.errors import TransientError
from tests.unit.consumer.custody import SHARDS, FakeLease, own, sole_owner
from tests.unit.consumer.deliveries import small_work
from tests.unit.consumer.working import Handling, running, shard_of_key
from tests.unit.consumer.worlds import PREFIX

pytestmark = pytest.mark.looptime(start=0)


@pytest.fixture
def lease():
    return FakeLease()


@pytest.fixture
def suspicious(lease):
    """A worker after a death with messages up to 9 in hand."""
    custody = sole_owner(lease)
    for shard in range(SHARDS):
        own(custody.fence, shard, Suspicion(until=9))
    return Worker(WorkQueue(PREFIX), custody)


async def test_suspects_are_handled_one_at_a_time_and_each_is_named_before(suspicious, lease):
    handling = Handling(takes_s=1.0)
    async with running(suspicious, handling):
        for number in range(3):
            suspicious.offer(small_work(number + 1, name=f"n{number}"))
        await asyncio.sleep(0.5)
        assert lease.log == [("named", 1)]
        await asyncio.sleep(10)
    assert handling.at_hand_max == 1
    assert lease.log == [(what, number) for number in (1, 2, 3) for what in ("named", "acquitted")]


async def test_what_came_after_the_death_goes_on_beside_the_suspects(suspicious):
    handling = Handling(takes_s=1.0)
    async with running(suspicious, handling):
        for number in range(AT_HAND_MAX):
            suspicious.offer(small_work(1, sequence=number % 9 + 1, name=f"old{number}"))
        for number in range(10):
            suspicious.offer(small_work(1, sequence=10 + number, name=f"new{number}"))
        await asyncio.sleep(0.5)
    handled = [work.message.sequence for _, work in handling.seen]
    assert sorted(sequence for sequence in handled if sequence > 9) == list(range(10, 20))
    assert len([sequence for sequence in handled if sequence <= 9]) == 1


async def test_a_suspect_that_was_handled_once_is_tried_again_as_any_other(suspicious, lease):
    handling = Handling()
    handling.verdicts = [Retry(0.1, "registry away")]
    async with running(suspicious, handling):
        suspicious.offer(small_work(1))
        await asyncio.sleep(5)
    assert len(handling.seen) == 2
    assert lease.log == [("named", 1), ("acquitted", 1)]


async def test_a_suspect_that_cannot_be_named_is_not_handled_until_it_can(suspicious, lease):
    lease.failures = [TransientError("broker away")]
    handling = Handling()
    async with running(suspicious, handling):
        suspicious.offer(small_work(1))
        await asyncio.sleep(5)
    assert handling.times == [0.5]
    assert lease.log == [("named", 1), ("acquitted", 1)]


async def test_a_suspect_of_too_many_deaths_is_to_be_buried_and_never_named(lease):
    custody = sole_owner(lease)
    own(custody.fence, shard_of_key(), Suspicion(until=9, deaths={7: 3}))
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling()
    async with running(worker, handling):
        worker.offer(small_work(7))
        await asyncio.sleep(1)
    ((_, work),) = handling.seen
    assert work.burial == "the consumer died 3 times with this message at hand"
    assert lease.log == []


async def test_a_suspect_that_is_broken_off_is_neither_named_any_longer_nor_acquitted(suspicious, lease):
    handling = Handling(takes_s=60.0)
    async with running(suspicious, handling):
        suspicious.offer(small_work(1))
        await asyncio.sleep(0.1)
        await suspicious.finish(shard_of_key(), deadline_s=0.1)
    assert lease.log == [("named", 1), ("unnamed", 0)]
