"""What a term sets going, and what its end stops, in which order."""

import asyncio

import pytest

from consumer.intake import Border, Intake, Once
from consumer.ownership.fence import Fence
from shared.errors import RefusedToStartError, TransientError
from tests.eventually import eventually
from tests.unit.consumer.custody import SHARDS, own
from tests.unit.consumer.fakes import FakeMessage

pytestmark = pytest.mark.looptime(start=0)


class FakeFeed:
    """A pull loop that only notes; `start` while it runs is a fault, as with the real one."""

    def __init__(self, log, stops_in_s=0.5):
        self._log = log
        self._stops_in_s = stops_in_s
        self.runs = False

    def start(self):
        assert not self.runs
        self.runs = True
        self._log.append("start")

    async def stop(self):
        self._log.append("stop")
        await asyncio.sleep(self._stops_in_s)
        self.runs = False

    async def flush(self):
        self._log.append("flush")


class FakeWorkers:
    def __init__(self, log):
        self._log = log

    def drop(self, shard):
        self._log.append("drop")
        return 0

    async def finish(self, shard, deadline_s):
        self._log.append(f"finish within {deadline_s}")
        await asyncio.sleep(1)


class Prepare:
    """Learns what others did; fails as often as it is told to."""

    def __init__(self):
        self.failures = 0
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        await asyncio.sleep(0.1)
        if self.failures:
            self.failures -= 1
            raise TransientError("broker away")


@pytest.fixture
def log():
    return []


@pytest.fixture
def prepare():
    return Prepare()


class Whose:
    """Says whose the stream is; `answers` come one after the other, the last for ever."""

    def __init__(self):
        self.answers = [None]
        self.calls = 0

    async def __call__(self):
        self.calls += 1
        await asyncio.sleep(0.1)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


@pytest.fixture
def whose():
    return Whose()


@pytest.fixture
def fence():
    return Fence(SHARDS, lambda: 0.0)


@pytest.fixture
async def intake(fence, log, prepare, whose):
    intake = Intake(fence, FakeWorkers(log), prepare, Border("c-1", whose), 6.0)
    intake.connect([FakeFeed(log) for _ in range(SHARDS)])
    yield intake
    await intake.close()


def taken(intake, shard, message):
    handed_on = []
    intake.take(shard, message, handed_on.append)
    return [held.sequence for held in handed_on]


async def test_a_term_begins_with_learning_and_then_its_feed(intake, fence, log, prepare):
    prepare.failures = 2
    intake.begin(own(fence, 3))
    await eventually(lambda: log)
    assert (log, prepare.calls) == (["start"], 3)
    assert taken(intake, 3, FakeMessage(7)) == [7]


async def test_a_feed_that_cannot_be_started_ends_the_process(intake, fence, log):
    term = own(fence, 3)
    intake.begin(term)
    await eventually(lambda: log)
    intake.begin(term)  # it runs already
    with pytest.raises(AssertionError):
        await intake.run()


async def test_the_first_fault_is_the_one_that_ends_the_process(intake):
    for fault in (ZeroDivisionError(), KeyError()):
        intake.fail(fault)
    with pytest.raises(ZeroDivisionError):
        await intake.run()


async def test_an_orderly_end_takes_no_more_finishes_and_sends_every_ack(intake, fence, log):
    term = own(fence, 3)
    intake.begin(term)
    await eventually(lambda: log)
    term.closing = True
    assert taken(intake, 3, FakeMessage(7)) == []
    await intake.end(term)
    assert log == ["start", "drop", "stop", "finish within 6.0", "flush"]


async def test_a_lost_term_stops_at_once(intake, fence, log):
    term = own(fence, 3)
    intake.begin(term)
    await eventually(lambda: log)
    fence.withdraw(term)
    intake.lost(term)
    assert log == ["start", "drop"]
    assert taken(intake, 3, FakeMessage(7)) == []
    await intake.close()
    assert log == ["start", "drop", "stop"]


async def test_a_shard_that_is_won_back_at_once_starts_its_feed_after_it_has_stopped(intake, fence, log):
    first = own(fence, 3)
    intake.begin(first)
    await eventually(lambda: log)
    fence.withdraw(first)
    intake.lost(first)
    intake.begin(own(fence, 3))
    assert taken(intake, 3, FakeMessage(7)) == [], "what the old feed brings is not of the new term"
    await intake.close()
    assert log == ["start", "drop", "stop", "start"]


async def test_a_term_that_is_lost_before_it_could_begin_starts_nothing(intake, fence, log):
    term = own(fence, 3)
    intake.begin(term)
    fence.withdraw(term)
    intake.lost(term)
    await intake.close()
    assert "start" not in log


# --- events of another cluster ---


def foreign(sequence):
    return FakeMessage(sequence, headers={"ce-source": "/clusters/c-2"})


async def beginning(intake, fence, log):
    term = own(fence, 3)
    intake.begin(term)
    await eventually(lambda: log)
    return term


async def test_an_event_of_another_cluster_is_handed_on_when_the_stream_is_ours(intake, fence, log, whose):
    await beginning(intake, fence, log)
    whose.answers = [TransientError("broker away"), None]
    handed_on = []
    intake.take(3, foreign(7), handed_on.append)
    assert handed_on == [], "nobody knows yet"
    await intake.close()
    assert [held.sequence for held in handed_on] == [7]


async def test_an_event_of_another_cluster_ends_the_process_when_the_stream_is_theirs_and_is_left(
    intake, fence, log, whose
):
    await beginning(intake, fence, log)
    whose.answers = [RefusedToStartError("c-2"), None]
    handed_on, messages = [], [foreign(number) for number in range(100)]
    for message in messages:
        intake.take(3, message, handed_on.append)
    with pytest.raises(RefusedToStartError, match="c-2"):
        await asyncio.wait_for(intake.run(), 5.0)
    await intake.close()
    assert (handed_on, whose.calls) == ([], 1)
    assert all(message.answers == [] for message in messages)


async def test_an_event_of_another_cluster_is_not_handed_on_when_the_shard_was_lost_meanwhile(
    intake, fence, log, whose
):
    term = await beginning(intake, fence, log)
    handed_on = []
    intake.take(3, foreign(7), handed_on.append)
    await eventually(lambda: whose.calls)
    fence.withdraw(term)
    intake.lost(term)
    await intake.close()
    assert handed_on == []


@pytest.mark.parametrize("source", ["/clusters/c-1", None], ids=["ours", "nobody's"])
async def test_other_events_ask_nothing(intake, fence, log, whose, source):
    await beginning(intake, fence, log)
    message = FakeMessage(7, headers={"ce-source": source} if source else {})
    assert taken(intake, 3, message) == [7]
    assert whose.calls == 0


async def test_many_shards_learn_together():
    prepare = Prepare()
    once = Once(prepare)
    await asyncio.gather(*(once() for _ in range(16)))
    assert prepare.calls == 1
    await once()
    assert prepare.calls == 2, "but what is asked later is learnt anew"
