"""Asked right before every effect: is the shard still ours?"""

import asyncio
import math

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from consumer.memory import Memory
from consumer.ownership.fence import Fence, FencedDeadLetters, Held
from consumer.requests.exchange import Exchanger, Instruments, Outgoing
from shared.errors import TransientError, UnreachableError
from shared.subjects import shard_of
from tests.unit.consumer.custody import SHARDS, own
from tests.unit.consumer.fakes import FakeDeadLetters, FakeMessage
from tests.unit.consumer.worlds import KEY

SHARD = shard_of(KEY, SHARDS)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def fence(clock):
    return Fence(SHARDS, clock)


@pytest.fixture
def term(fence):
    return own(fence, SHARD, until=108.0)


def test_without_a_term_nothing_may_happen(fence):
    assert not fence.owns(SHARD)
    with pytest.raises(TransientError, match="no longer ours"):
        fence.check(KEY)


def test_a_term_runs_out_by_itself(fence, term, clock):
    fence.check(KEY)
    clock.now = 107.999
    fence.check(KEY)
    clock.now = 108.0
    with pytest.raises(TransientError, match=f"{KEY}.*no longer ours"):
        fence.check(KEY)
    assert not fence.owns(SHARD)


def test_a_shard_is_ours_for_as_long_as_its_term_lasts(fence, term, clock):
    clock.now = 107.5
    assert fence.left_s(SHARD) == 0.5
    clock.now = 109.0
    assert fence.left_s(SHARD) == 0.0


def test_a_shard_that_is_not_ours_is_ours_for_no_time(fence, term):
    assert fence.left_s((SHARD + 1) % SHARDS) == 0.0


def test_another_shard_is_another_matter(fence, term):
    assert not fence.owns((SHARD + 1) % SHARDS)


def test_work_of_a_term_that_ended_does_nothing_in_the_next_one(fence, term):
    with fence.handling(term):
        fence.withdraw(term)
        own(fence, SHARD)
        with pytest.raises(TransientError):
            fence.check(KEY)
        assert fence.budget_s() == 0.0
    fence.check(KEY)


def test_the_end_of_an_old_term_does_not_end_the_present_one(fence, term):
    now = own(fence, SHARD)
    fence.withdraw(term)
    assert fence.term(SHARD) is now


def test_a_request_is_given_what_is_left_of_the_term(fence, term, clock):
    assert fence.budget_s() == math.inf
    with fence.handling(term):
        assert fence.budget_s() == pytest.approx(8.0)
        clock.now = 107.0
        assert fence.budget_s() == pytest.approx(1.0)
        clock.now = 109.0
        assert fence.budget_s() == 0.0


def test_while_a_shard_is_given_away_only_work_that_has_begun_sends_requests(fence, term):
    with fence.handling(term):
        assert fence.budget_s() > 0
        term.closing = True
        assert fence.budget_s() > 0, "it has sent one: it may finish"
    with fence.handling(term):
        assert fence.budget_s() == 0.0


async def test_each_task_is_asked_about_its_own_work(fence, term):
    other = own(fence, (SHARD + 1) % SHARDS, until=103.0)

    async def budget(of):
        with fence.handling(of):
            await asyncio.sleep(0)
            return fence.budget_s()

    assert await asyncio.gather(budget(term), budget(other)) == [pytest.approx(8.0), pytest.approx(3.0)]


async def test_a_request_that_waited_beyond_the_fence_is_not_sent(fence, term, clock):
    sent = []
    transport = httpx.MockTransport(lambda request: sent.append(request) or httpx.Response(200))
    async with httpx.AsyncClient(transport=transport, base_url="http://registry") as http:
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        outgoing = Outgoing(method="PATCH", path="/x", route="/x")
        with fence.handling(term):
            await exchanger.send(outgoing, fence.budget_s)
            fence.check(KEY)
            clock.now = 107.5  # it waited for its place, and less than a second is left
            with pytest.raises(TransientError, match="not sent"):
                await exchanger.send(outgoing, fence.budget_s)
    assert len(sent) == 1


# --- what is answered ---


async def test_a_message_is_answered_while_its_term_lasts(fence, term):
    message = FakeMessage(7)
    held = Held(message, term, fence)
    await held.in_progress()
    await held.ack()
    await held.terminate("bad")
    assert message.answers == ["in progress", "ack", "terminate: bad"]


async def test_a_message_of_a_lost_shard_is_not_answered(fence, term, clock):
    message = FakeMessage(7)
    held = Held(message, term, fence)
    clock.now = 108.0
    for answer in (held.ack(), held.terminate("bad")):
        with pytest.raises(TransientError, match="message 7"):
            await answer
    await held.in_progress()
    assert message.answers == []


async def test_an_answer_that_cannot_be_sent_is_told(fence, term):
    message = FakeMessage(7)
    message.fail("ack", UnreachableError("away"))
    with pytest.raises(UnreachableError):
        await Held(message, term, fence).ack()


async def test_nothing_is_buried_or_dug_up_in_a_shard_that_was_lost(fence, term, clock):
    letters = FakeDeadLetters()
    fenced = FencedDeadLetters(letters, fence)
    await fenced.bury(KEY, {}, b"", "bad")
    clock.now = 108.0
    with pytest.raises(TransientError):
        await fenced.clear(KEY)
    with pytest.raises(TransientError):
        await fenced.bury(KEY, {}, b"", "worse")
    assert letters.entries[KEY][0] == "bad"


# --- what is remembered ---


class Due:
    due = True


def test_what_is_known_of_an_object_is_forgotten_with_the_term(fence, term):
    memory = Memory()
    with fence.handling(term):
        memory.put("u-1", Due())
        assert memory.get("u-1") is not None
        assert memory.deferred() == 1
    fence.withdraw(term)
    assert memory.deferred() == 0
    with fence.handling(own(fence, SHARD)):
        assert memory.get("u-1") is None
