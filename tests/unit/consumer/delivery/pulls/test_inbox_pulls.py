"""Credit, status codes, and when the watchdog acts: on a played server and a virtual clock."""

import asyncio
from types import SimpleNamespace

import nats.errors
import nats.js.errors
import pytest

from consumer.delivery.pulls import Answer, Credit, PullSettings, read_status
from consumer.inbox import Durable, PullLoop
from tests.unit.consumer.delivery.pulls.played_broker import first_pull, now

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("100", Answer.ALIVE),
        ("404", Answer.ENDED),
        ("408", Answer.ENDED),
        ("409", Answer.REFUSED),
        ("423", Answer.REFUSED),
        ("503", Answer.REFUSED),
        ("400", Answer.ENDED),
        ("", Answer.ENDED),
    ],
)
def test_a_status_means_what_its_code_says(code, answer):
    assert read_status(code) is answer


def test_credit_asks_for_what_is_missing_only():
    credit = Credit(8)
    assert [credit.take(), credit.take()] == [8, 0]
    credit.give_back(3)
    assert credit.take() == 3


def test_credit_is_due_from_half_of_the_batch_on():
    credit = Credit(8)
    credit.take()
    credit.give_back(3)
    assert not credit.due
    credit.give_back(1)
    assert credit.due


def test_credit_never_falls_below_zero():
    credit = Credit(8)
    credit.take()
    credit.forget()
    credit.give_back(5)
    assert credit.outstanding == 0
    assert credit.take() == 8


@pytest.fixture
async def pull_loop(broker, taken, stats):
    loop = PullLoop(broker, Durable("S", "C", broker.ensure, PullSettings(batch=8)), taken.append, stats=stats)
    yield loop
    await loop.stop()


async def test_heartbeats_keep_the_pull_waiting(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    await broker.beats_for(20)
    assert len(broker.pulls) == 1
    assert stats.heartbeats_missed == 0


async def test_silence_of_one_second_pulls_a_full_batch_anew(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    await broker.delivers(1)
    await asyncio.sleep(0.99)
    assert len(broker.pulls) == 1
    await asyncio.sleep(0.12)
    assert [batch for _, batch in broker.pulls] == [8, 8]
    assert stats.heartbeats_missed == 1
    assert stats.resets == 1


async def test_half_of_the_batch_tops_up(pull_loop, broker):
    await first_pull(pull_loop, broker)
    for sequence in range(1, 5):
        await broker.delivers(sequence)
    assert [batch for _, batch in broker.pulls] == [8, 4]


@pytest.mark.parametrize("code", ["404", "408"])
async def test_an_ended_pull_gives_back_what_it_left_open(pull_loop, broker, code):
    await first_pull(pull_loop, broker)
    await broker.says(code, **{"Nats-Pending-Messages": "6"})
    assert [batch for _, batch in broker.pulls] == [8, 6]


async def test_an_ended_pull_with_garbage_for_a_number_gives_back_nothing(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    await broker.says("408", **{"Nats-Pending-Messages": "-x"})
    assert len(broker.pulls) == 1
    assert stats.callback_errors == 0


@pytest.mark.parametrize("code", ["409", "423", "503"])
async def test_a_refused_pull_is_repeated_after_a_pause(pull_loop, broker, stats, code):
    await first_pull(pull_loop, broker)
    refused_at = now()
    await broker.says(code)
    await broker.delivers(1)
    assert len(broker.pulls) == 1
    await asyncio.sleep(0.3)
    assert [batch for _, batch in broker.pulls] == [8, 8]
    assert 0.1 <= broker.pulls[1][0] - refused_at <= 0.21
    assert stats.refused_pulls == 1


async def test_pulls_refused_again_and_again_are_repeated_more_and_more_slowly(pull_loop, broker):
    await first_pull(pull_loop, broker)
    for _ in range(400):
        await broker.says("503")
        await asyncio.sleep(0.1)
    gaps = [later - earlier for (earlier, _), (later, _) in zip(broker.pulls, broker.pulls[1:], strict=False)]
    assert max(gaps) <= 1.3
    assert 35 < len(broker.pulls) < 60


async def test_the_pause_is_short_again_once_a_pull_was_served(pull_loop, broker):
    await first_pull(pull_loop, broker)
    for _ in range(40):
        await broker.says("503")
        await asyncio.sleep(0.1)
    await broker.beats_for(2)
    refused_at = now()
    await broker.says("503")
    await asyncio.sleep(0.5)
    assert 0.1 <= broker.pulls[-1][0] - refused_at <= 0.21


async def test_a_refused_pull_whose_consumer_is_gone_creates_it_anew(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    broker.consumer_exists = False
    await broker.says("409")
    await asyncio.sleep(0.5)
    assert broker.consumer_exists
    assert stats.consumers_recreated == 1
    assert stats.resets == 2
    assert len(broker.inboxes) == 2


async def test_silence_whose_consumer_is_gone_creates_it_anew(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    broker.consumer_exists = False
    await asyncio.sleep(1.5)
    assert broker.consumer_exists
    assert stats.consumers_recreated == 1


async def test_a_reconnect_resets_at_once_into_a_new_inbox(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    broker.stats["reconnects"] += 1
    for hook in broker.hooks:
        hook()
    await asyncio.sleep(0.01)
    assert len(broker.resets) == 2
    assert list(broker.subscriptions) == broker.inboxes[1:]


async def test_the_watchdog_sees_a_reconnect_that_nobody_reported(pull_loop, broker):
    await first_pull(pull_loop, broker)
    broker.stats["reconnects"] += 1
    await asyncio.sleep(0.11)
    assert len(broker.resets) == 2


async def test_nothing_is_pulled_while_disconnected(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    broker.is_connected = False
    await asyncio.sleep(10)
    assert len(broker.pulls) == 1
    assert stats.heartbeats_missed == 0


async def test_a_start_without_a_connection_waits_for_it(pull_loop, broker, stats):
    broker.is_connected = False
    broker.reset_errors = [nats.errors.TimeoutError()]  # what a request would get
    pull_loop.start()
    await asyncio.sleep(60)
    assert (broker.pulls, stats.failed_resets) == ([], 0)
    broker.is_connected = True
    broker.reset_errors = []
    await asyncio.sleep(0.11)
    assert len(broker.pulls) == 1


async def test_a_failed_reset_is_tried_again_until_it_succeeds(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    broker.reset_errors = [nats.errors.TimeoutError(), nats.js.errors.ServiceUnavailableError()]
    await pull_loop.stop()
    pull_loop.start()
    await asyncio.sleep(0.8)
    assert stats.failed_resets == 2
    assert stats.resets == 2


async def test_a_pull_that_cannot_be_sent_is_sent_when_silence_follows(pull_loop, broker):
    await first_pull(pull_loop, broker)
    await half_a_batch_whose_successor_is_not_sent(broker)
    await asyncio.sleep(1.11)
    assert [batch for _, batch in broker.pulls] == [8, 8]


async def test_a_pull_that_cannot_be_sent_costs_no_credit(pull_loop, broker):
    await first_pull(pull_loop, broker)
    await half_a_batch_whose_successor_is_not_sent(broker)
    await broker.says("100")
    assert [batch for _, batch in broker.pulls] == [8, 8]


async def half_a_batch_whose_successor_is_not_sent(broker):
    broker.publish_error = nats.errors.OutboundBufferLimitError()
    for sequence in range(1, 5):
        await broker.delivers(sequence)
    broker.publish_error = None


async def test_a_message_with_a_strange_reply_subject_is_counted_and_the_next_is_taken(pull_loop, broker, stats, taken):
    await first_pull(pull_loop, broker)
    await broker.delivers(1, reply="$JS.ACK.strange")
    await broker.delivers(2)
    assert stats.callback_errors == 1
    assert [delivery.sequence for delivery in taken] == [2]


async def test_a_stopped_loop_takes_nothing_more(pull_loop, broker, taken):
    await first_pull(pull_loop, broker)
    late = broker.subscriptions[broker.inboxes[-1]]
    await pull_loop.stop()
    await late(SimpleNamespace(reply="$JS.ACK.S.C.1.1.1.1.0", subject="x", headers=None, data=b""))
    assert taken == []
    assert broker.subscriptions == {}


async def test_a_message_seen_before_counts_as_redelivered_although_the_server_counts_anew(pull_loop, broker, stats):
    await first_pull(pull_loop, broker)
    for sequence in (1, 2):
        await broker.delivers(sequence)
    await pull_loop.stop()
    pull_loop.start()
    await asyncio.sleep(0.01)
    for sequence in (1, 2, 3):
        await broker.delivers(sequence)
    assert (stats.delivered, stats.redelivered) == (5, 2)


async def test_a_fault_that_ends_the_loop_is_told(broker, caplog):
    async def ensure():
        raise ZeroDivisionError

    broker.consumer_exists = False
    deaths = []
    loop = PullLoop(broker, Durable("S", "C", ensure), deaths.append, on_death=deaths.append)
    loop.start()
    await asyncio.sleep(0.01)
    assert [type(death) for death in deaths] == [ZeroDivisionError]
    assert "the pull loop died" in caplog.text
    await loop.stop()
