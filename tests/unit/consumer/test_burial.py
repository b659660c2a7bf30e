"""A message that killed three consumers is buried; those whose place it took killed nobody, and have their turn."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from consumer.delivery.workqueue import WorkQueue
from consumer.observation import PassedVersion
from consumer.ownership.suspicion import Suspicion
from consumer.verdict import Ack, Retry
from consumer.worker import Worker
from shared.subjects import shard_of
from tests.unit.consumer.custody import SHARDS, own, sole_owner
from tests.unit.consumer.deliveries import small_work
from tests.unit.consumer.worlds import KEY, PREFIX

pytestmark = pytest.mark.looptime(start=0)

DEADLY = 3  # the sequence, and the resourceVersion, of the message that killed


class Handler:
    """Acknowledges, or fails once. `told`: sequence, version, and versions that it passed over; a burial by a minus."""

    def __init__(self) -> None:
        self.told = []
        self.fails_once = set()

    async def __call__(self, work):
        sequence = work.message.sequence
        if sequence in self.fails_once:
            self.fails_once.remove(sequence)
            return Retry(1.0, "registry away")
        passed = [each.version for each in work.seen.passed]
        self.told.append((-sequence if work.burial else sequence, *passed))
        await work.message.ack()
        return Ack()


@asynccontextmanager
async def running(handler):
    custody = sole_owner()
    own(custody.fence, shard_of(KEY, SHARDS), Suspicion(until=9, deaths={DEADLY: 3}))
    worker = Worker(WorkQueue(PREFIX), custody)
    task = asyncio.create_task(worker.run(handler))
    try:
        yield worker
        await asyncio.sleep(10)
        assert worker.held() == 0
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def handler():
    return Handler()


async def test_what_a_buried_message_passed_over_is_handled_before_it(handler):
    works = [small_work(number, label=f"1{number}") for number in (1, 2, DEADLY)]
    async with running(handler) as worker:
        for work in works:
            worker.offer(work)
    assert handler.told == [(2, "11"), (-DEADLY,)]
    assert [work.message.answers for work in works] == [["ack"]] * 3


async def test_a_version_told_by_nothing_else_stays_with_the_buried_message(handler):
    """2 says what the deadly one says, which took it over for good; its letter tells it."""
    works = [small_work(1, label="11"), small_work(2, label="12"), small_work(DEADLY, label="12")]
    async with running(handler) as worker:
        for work in works:
            worker.offer(work)
    assert handler.told == [(1,), (-DEADLY, "12")]


async def test_what_was_passed_over_and_fails_keeps_the_burial_waiting(handler):
    handler.fails_once = {2}
    async with running(handler) as worker:
        for number in (1, 2, DEADLY):
            worker.offer(small_work(number, label=f"1{number}"))
    assert handler.told == [(2, "11"), (-DEADLY,)]


async def test_a_newer_state_that_comes_meanwhile_tells_all_of_them(handler):
    newest = small_work(20, label="14")
    async with running(handler) as worker:
        for number in (1, 2, DEADLY):
            worker.offer(small_work(number, label=f"1{number}"))
        worker.offer(newest)
    assert handler.told == [(20, "11", "12", "13")]


def test_a_message_given_up_for_the_moment_leaves_the_older_one_all_that_came_before():
    queue = WorkQueue(PREFIX, 0.2)
    works = [small_work(number, label=f"1{number}") for number in (1, 2, DEADLY)]
    for work in works:
        queue.add(work, 0.0)
    deadly = queue.next(0.0)
    deadly.burial = "the consumer died 3 times"
    assert queue.again(deadly, 0.1, delay_s=0.0) is None
    older = queue.next(0.1)
    assert older is works[1]
    assert older.seen.passed == (PassedVersion("1", "11", "1", "t1", 1),)
    assert (older.passed, deadly.passed, deadly.seen.passed) == ([works[0]], [], ())
    assert queue.held() == [deadly, older]
