"""Whose the work is: what a worker does with that of a shard that it loses, or gives away."""

import asyncio

import pytest
from msgspec.structs import replace

from consumer.delivery.workqueue import WorkQueue
from consumer.verdict import Retry
from consumer.worker import AT_HAND_MAX, Worker
from shared.subjects import shard_of
from tests.unit.consumer.custody import SHARDS, own, sole_owner
from tests.unit.consumer.deliveries import small_work
from tests.unit.consumer.working import Handling, now, running, shard_of_key
from tests.unit.consumer.worlds import KEY, PREFIX

pytestmark = pytest.mark.looptime(start=0)


async def test_work_of_a_shard_that_is_not_ours_is_not_taken_in():
    custody = sole_owner()
    custody.fence.withdraw(custody.fence.term_of(KEY))
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling()
    async with running(worker, handling):
        worker.offer(small_work(1))
        await asyncio.sleep(1)
    assert (handling.seen, worker.held()) == ([], 0)


async def test_what_waits_of_a_lost_shard_is_dropped_without_an_answer_and_others_go_on():
    custody = sole_owner()
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling(takes_s=1.0)
    other = next(name for name in map(str, range(100)) if shard_of(replace(KEY, name=name), SHARDS) != shard_of_key())
    async with running(worker, handling):
        first, waits, of_another = small_work(1), small_work(2), small_work(3, name=other)
        worker.offer(first)
        await asyncio.sleep(0.1)
        worker.offer(waits)
        worker.offer(of_another)
        custody.fence.withdraw(custody.fence.term_of(KEY))
        assert worker.drop(shard_of_key()) == 1
        await asyncio.sleep(5)
    assert [work for _, work in handling.seen] == [first, of_another]
    assert waits.message.answers == []


async def test_work_that_fails_when_its_shard_is_lost_is_not_tried_again():
    custody = sole_owner()
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling(takes_s=1.0)
    handling.verdicts = [Retry(0.1, "no longer ours")]
    async with running(worker, handling):
        worker.offer(small_work(1))
        await asyncio.sleep(0.1)
        custody.fence.withdraw(custody.fence.term_of(KEY))
        own(custody.fence, shard_of_key())  # and won back: its reset brings the message anew
        await asyncio.sleep(5)
    assert len(handling.seen) == 1
    assert worker.held() == 0


async def test_a_shard_that_is_given_away_finishes_what_is_at_hand_and_begins_nothing():
    custody = sole_owner()
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling(takes_s=2.0)
    async with running(worker, handling):
        first = small_work(1)
        worker.offer(first)
        await asyncio.sleep(0.1)
        custody.fence.term_of(KEY).closing = True
        worker.offer(small_work(2))
        await worker.finish(shard_of_key(), deadline_s=6.0)
        assert (round(now(), 3), first.message.answers) == (2.0, ["ack"])
        await asyncio.sleep(5)
    assert [work for _, work in handling.seen] == [first]


async def test_what_does_not_finish_in_time_is_broken_off_unanswered():
    custody = sole_owner()
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling(takes_s=60.0)
    async with running(worker, handling):
        first = small_work(1)
        worker.offer(first)
        await asyncio.sleep(0.1)
        custody.fence.term_of(KEY).closing = True
        await worker.finish(shard_of_key(), deadline_s=6.0)
        assert round(now(), 1) == 6.1
        assert (first.message.answers, worker.held(), handling.at_hand) == ([], 0, 0)


async def test_every_slot_is_free_again_after_work_was_broken_off():
    custody = sole_owner()
    worker, handling = Worker(WorkQueue(PREFIX), custody), Handling(takes_s=60.0)
    async with running(worker, handling):
        for number in range(AT_HAND_MAX):
            worker.offer(small_work(number + 1, name=f"n{number}"))
        await asyncio.sleep(0.1)
        assert handling.at_hand == AT_HAND_MAX
        await asyncio.gather(*(worker.finish(shard, deadline_s=0.1) for shard in range(SHARDS)))
        handling.takes_s = 0.0
        before = len(handling.seen)
        for number in range(AT_HAND_MAX):
            worker.offer(small_work(number + 1, name=f"m{number}"))
        await asyncio.sleep(1)
        assert len(handling.seen) == before + AT_HAND_MAX
