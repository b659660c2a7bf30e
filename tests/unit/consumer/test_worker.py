"""The loop around the queue, in virtual time: who is handled when, and what the broker is told meanwhile."""

import asyncio

import pytest

from consumer.delivery.workqueue import WorkQueue
from consumer.verdict import Bury, Retry
from consumer.worker import AT_HAND_MAX, Worker
from shared.errors import TransientError, UnreachableError
from tests.unit.consumer.custody import sole_owner
from tests.unit.consumer.deliveries import look_work, small_work
from tests.unit.consumer.working import Handling, now, running
from tests.unit.consumer.worlds import KEY, PREFIX

pytestmark = pytest.mark.looptime(start=0)


@pytest.fixture
def worker():
    return Worker(WorkQueue(PREFIX), sole_owner())


async def test_a_message_of_a_quiet_object_is_handled_at_once(worker):
    handling = Handling()
    async with running(worker, handling):
        await asyncio.sleep(5)
        work = small_work(1)
        worker.offer(work)
        await asyncio.sleep(0.001)
        assert handling.seen == [(5.0, work)]
        assert work.message.answers == ["ack"]
        assert worker.held() == 0


async def test_a_burst_of_one_object_is_two_handlings_and_every_message_is_acknowledged(worker):
    handling = Handling()
    burst = [small_work(version) for version in range(1, 6)]
    async with running(worker, handling):
        for work in burst:
            worker.offer(work)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
    assert handling.seen == [(0.0, burst[0]), (0.2, burst[4])]
    assert [work.message.answers for work in burst] == [["ack"]] * 5


async def test_what_was_replaced_is_acknowledged_while_the_newer_one_is_still_held(worker):
    handling = Handling(takes_s=100)
    first, second, third = (small_work(version) for version in (1, 2, 3))
    async with running(worker, handling):
        for work in (first, second, third):
            worker.offer(work)
            await asyncio.sleep(0.01)
        assert [work.message.answers for work in (first, second, third)] == [[], ["ack"], []]
        assert worker.held() == 2


async def test_two_deliveries_of_one_message_are_acknowledged_only_when_it_is_done(worker):
    handling = Handling(takes_s=10)
    once, twice, thrice = (small_work(1) for _ in range(3))
    async with running(worker, handling):
        for work in (once, twice, thrice):
            worker.offer(work)
            await asyncio.sleep(1)
        assert [work.message.answers for work in (once, twice, thrice)] == [[], [], []]
        await asyncio.sleep(30)
    assert [work.message.answers for work in (once, twice, thrice)] == [["ack"], [], ["ack"]]


async def test_a_second_delivery_during_a_failing_try_is_not_the_last_word_on_it(worker):
    handling = Handling(takes_s=1)
    handling.verdicts = [Retry(5.0, "away")]
    first, second = small_work(1), small_work(1)
    earlier, later = first.message, second.message
    async with running(worker, handling):
        worker.offer(first)
        await asyncio.sleep(0.5)
        worker.offer(second)
        await asyncio.sleep(0.6)
        assert (earlier.answers, later.answers) == ([], [])
        await asyncio.sleep(10)
    assert (earlier.answers, later.answers) == ([], ["ack"])


async def test_a_version_that_a_newer_state_passed_over_is_acknowledged_with_that_and_not_before(worker):
    handling = Handling(takes_s=1)
    at_hand, passed, newer = small_work(1, label="11"), small_work(2, label="12"), small_work(3, label="13")
    async with running(worker, handling):
        for work in (at_hand, passed, newer):
            worker.offer(work)
            await asyncio.sleep(0.1)
        assert passed.message.answers == []
        await asyncio.sleep(10)
    assert [work.message.answers for work in (at_hand, passed, newer)] == [["ack"], ["ack"], ["ack"]]


async def test_an_older_state_that_comes_late_is_acknowledged_and_not_handled(worker):
    handling = Handling(takes_s=10)
    newer, older = small_work(2), small_work(1)
    async with running(worker, handling):
        worker.offer(newer)
        await asyncio.sleep(1)
        worker.offer(older)
        await asyncio.sleep(1)
        assert older.message.answers == ["ack"]
        assert worker.held() == 1
        await asyncio.sleep(60)
    assert [work for _, work in handling.seen] == [newer]


async def test_a_retry_comes_back_after_its_delay(worker):
    handling = Handling(takes_s=1)
    handling.verdicts = [Retry(7.0, "away"), Retry(30.0, "away")]
    work = small_work(1)
    async with running(worker, handling):
        worker.offer(work)
        await asyncio.sleep(100)
    assert handling.times == [0.0, 8.0, 39.0]
    assert work.message.answers == ["ack"]
    assert work.attempt == 3


async def test_a_newer_state_ends_a_retrys_wait_and_the_older_one_is_acknowledged(worker):
    handling = Handling()
    handling.verdicts = [Retry(60.0, "away")]
    failing, newer = small_work(1), small_work(2)
    async with running(worker, handling):
        worker.offer(failing)
        await asyncio.sleep(10)
        assert failing.message.answers == []
        worker.offer(newer)
        await asyncio.sleep(0.01)
    assert handling.seen == [(0.0, failing), (10.0, newer)]
    assert (failing.message.answers, newer.message.answers) == (["ack"], ["ack"])


async def test_a_failure_with_a_newer_state_waiting_is_acknowledged(worker):
    handling = Handling(takes_s=1)
    handling.verdicts = [Retry(60.0, "away")]
    failing, newer = small_work(1), small_work(2)
    async with running(worker, handling):
        worker.offer(failing)
        await asyncio.sleep(0.5)
        worker.offer(newer)
        await asyncio.sleep(0.6)
        assert failing.message.answers == ["ack"]
        assert newer.message.answers == []
        await asyncio.sleep(5)
    assert handling.times == [0.0, 1.0]


async def test_one_object_in_trouble_holds_up_no_other(worker):
    handling = Handling()
    handling.verdicts = [Retry(60.0, "away")]
    other = small_work(2, name="b", uid="other")
    async with running(worker, handling):
        worker.offer(small_work(1))
        await asyncio.sleep(1)
        worker.offer(other)
        await asyncio.sleep(0.01)
        assert other.message.answers == ["ack"]


async def test_what_is_buried_is_over(worker):
    handling = Handling()
    handling.verdicts = [Bury("no such model")]
    async with running(worker, handling):
        worker.offer(small_work(1))
        await asyncio.sleep(60)
        assert worker.held() == 0
    assert len(handling.seen) == 1


async def test_an_answer_that_does_not_leave_ends_the_message_here(worker):
    handling = Handling()
    handling.verdicts = [UnreachableError("broker away")]
    async with running(worker, handling):
        worker.offer(small_work(1))
        await asyncio.sleep(60)
        assert worker.held() == 0
        worker.offer(small_work(1))  # delivered again
        await asyncio.sleep(1)
    assert len(handling.seen) == 2


async def test_an_acknowledgement_of_a_replaced_one_that_does_not_leave_disturbs_nothing(worker):
    handling = Handling()
    first, second, third = (small_work(version) for version in (1, 2, 3))
    second.message.fail("ack", TransientError("broker away"))
    async with running(worker, handling):
        for work in (first, second, third):
            worker.offer(work)
        await asyncio.sleep(1)
    assert second.message.pending == 0, "it was tried"
    assert (first.message.answers, second.message.answers) == (["ack"], [])
    assert third.message.answers == ["ack"]


async def test_side_by_side_are_as_many_objects_as_there_are_slots(worker):
    handling = Handling(takes_s=1)
    async with running(worker, handling):
        for number in range(AT_HAND_MAX + 10):
            worker.offer(small_work(number + 1, name=f"model-{number}", uid=f"uid-{number}"))
        await asyncio.sleep(5)
    assert handling.at_hand_max == AT_HAND_MAX
    assert handling.times.count(0.0) == AT_HAND_MAX
    assert handling.times.count(1.0) == 10


async def test_everything_in_hand_is_kept_alive(worker):
    handling = Handling(takes_s=1000)
    at_hand, waiting, other = small_work(1), small_work(2), small_work(3, name="b", uid="other")
    async with running(worker, handling):
        for work in (at_hand, waiting, other):
            worker.offer(work)
            await asyncio.sleep(0.1)
        keeping = asyncio.create_task(worker.keep_alive(10))
        await asyncio.sleep(25)
        keeping.cancel()
        await asyncio.wait([keeping])
    assert [work.message.answers for work in (at_hand, waiting, other)] == [["in progress"] * 2] * 3


async def test_a_broker_that_is_away_does_not_end_the_keeping_alive(worker):
    work = small_work(1)
    work.message.fail("in_progress", UnreachableError("away"))
    worker.offer(work)
    keeping = asyncio.create_task(worker.keep_alive(10))
    await asyncio.sleep(25)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.wait([keeping])
    assert (work.message.calls["in_progress"], work.message.answers) == (2, ["in progress"])


async def test_a_look_comes_after_its_delay(worker):
    handling = Handling()
    async with running(worker, handling):
        worker.look_again(KEY, 5.0)
        await asyncio.sleep(4.9)
        assert handling.seen == []
        await asyncio.sleep(0.2)
    ((at, work),) = handling.seen
    assert (at, work.key, work.forced, work.is_own_look) == (5.0, KEY, False, True)


async def test_a_look_that_somebody_waits_for_is_not_acknowledged_for_one_of_our_own(worker):
    handling = Handling(takes_s=1)
    handling.verdicts = [Retry(5.0, "away")]
    asked = look_work(sequence=9)
    async with running(worker, handling):
        worker.offer(asked)
        worker.look_again(KEY, 0.5)
        await asyncio.sleep(2)
        assert asked.message.answers == []
        await asyncio.sleep(10)
    assert asked.message.answers == ["ack"]


async def test_draining_waits_for_what_is_at_hand_and_leaves_the_rest(worker):
    handling = Handling(takes_s=3)
    at_hand, waiting = small_work(1), small_work(2)
    run = asyncio.create_task(worker.run(handling))
    worker.offer(at_hand)
    await asyncio.sleep(1)
    worker.offer(waiting)
    run.cancel()
    await asyncio.wait([run])
    await worker.drain(6)
    assert now() == pytest.approx(3.0)
    assert (at_hand.message.answers, waiting.message.answers) == (["ack"], [])


async def test_draining_ends_at_its_deadline(worker):
    handling = Handling(takes_s=1000)
    work = small_work(1)
    run = asyncio.create_task(worker.run(handling))
    worker.offer(work)
    await asyncio.sleep(1)
    run.cancel()
    await asyncio.wait([run])
    await worker.drain(6)
    assert now() == pytest.approx(7.0)
    await asyncio.sleep(0)
    assert handling.at_hand == 0
    assert work.message.answers == []


async def test_draining_an_idle_worker_takes_no_time(worker):
    await worker.drain(6)
    assert now() == 0


async def test_a_worker_that_runs_idle_does_nothing(worker):
    handling = Handling()
    async with running(worker, handling):
        await asyncio.sleep(3600)
    assert handling.seen == []
