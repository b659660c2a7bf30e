"""The loop around the queue, in virtual time: who is handled when, and what the broker is told meanwhile."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from consumer.suspicion import Suspicion
from consumer.verdict import Ack, Bury, Retry
from consumer.worker import AT_HAND_MAX, Worker
from consumer.workqueue import WorkQueue
from shared.errors import TransientError, UnreachableError
from shared.subjects import shard_of
from tests.unit.consumer.custody import SHARDS, FakeLease, own, sole_owner
from tests.unit.consumer.deliveries import look_work, small_work
from tests.unit.consumer.worlds import KEY, PREFIX

pytestmark = pytest.mark.looptime(start=0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Handling:
    """A handler that takes its time, answers what it is told to, and writes down what it was given, and when."""

    def __init__(self, *, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.verdicts = []
        self.seen = []
        self.at_hand = 0
        self.at_hand_max = 0

    async def __call__(self, work):
        self.seen.append((round(now(), 3), work))
        self.at_hand += 1
        self.at_hand_max = max(self.at_hand, self.at_hand_max)
        try:
            await asyncio.sleep(self.takes_s)
        finally:
            self.at_hand -= 1
        verdict = self.verdicts.pop(0) if self.verdicts else Ack()
        if isinstance(verdict, Exception):
            raise verdict
        if isinstance(verdict, Ack):
            await work.message.ack()
        return verdict

    @property
    def times(self):
        return [at for at, _ in self.seen]


@asynccontextmanager
async def running(worker, handling):
    task = asyncio.create_task(worker.run(handling))
    try:
        yield
        assert not task.done(), "the worker ended"
    finally:
        task.cancel()
        await worker.drain(0)
        await asyncio.wait([task])


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


# --- whose the work is ---


def shard_of_key(key=KEY):
    return shard_of(key, SHARDS)


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


# --- what may have killed an owner ---


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
