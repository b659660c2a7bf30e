"""The keyed publisher against a real broker that dies, hangs and refuses."""

import asyncio
from collections import Counter, defaultdict

import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from producer.publisher import WINDOW, Message, Publisher
from shared.broker import Broker, BrokerSettings
from tests.eventually import eventually

STREAM = "S"


class Seen:
    """The publisher's observer."""

    def __init__(self):
        self.sent_messages = 0
        self.refusals: Counter[str] = Counter()

    def sent(self, duration_s):
        assert duration_s >= 0
        self.sent_messages += 1

    def refused(self, code):
        self.refusals[code] += 1


@pytest.fixture
async def broker(broker_server):
    async with Broker(BrokerSettings(nats_url=(broker_server.url,)), on_closed=lambda: None) as broker:
        yield broker


@pytest.fixture
def seen():
    return Seen()


@pytest.fixture
async def publisher(broker, seen):
    publisher = Publisher(broker.client, seen)
    await publisher.start()
    broker.on_reconnect(publisher.kick)
    yield publisher
    await publisher.close()


async def make_stream(broker, **options):
    await broker.jetstream.add_stream(StreamConfig(name=STREAM, subjects=["s.>"], duplicate_window=60, **options))


def message(key, number, acknowledged=lambda _: None, size=20):
    headers = {"Nats-Msg-Id": f"{key}:{number}"}
    return Message(key, f"s.{key}", str(number).rjust(size).encode(), headers, acknowledged)


async def stored(broker):
    """Per key the numbers in the order of the stream."""
    found = defaultdict(list)
    js = broker.jetstream
    state = (await js.stream_info(STREAM)).state
    subscription = await js.subscribe("s.>", ordered_consumer=True)
    for _ in range(state.messages):
        got = await subscription.next_msg(timeout=5)
        found[got.subject.removeprefix("s.")].append(int(got.data))
    await subscription.unsubscribe()
    return dict(found)


async def test_messages_of_a_key_are_stored_in_order_and_acknowledged_with_their_sequence(broker, publisher, seen):
    await make_stream(broker)
    acknowledged = []
    for number in range(100):
        await publisher.put(message("a", number, acknowledged.append))
    await publisher.barrier()
    assert acknowledged == list(range(1, 101))
    assert await stored(broker) == {"a": list(range(100))}
    assert (seen.sent_messages, publisher.unacknowledged) == (100, 0)


async def put_many(publisher, count, keys):
    for number in range(count):
        await publisher.put(message(f"k{number % keys}", number))


async def test_R31_kill_9_with_a_full_window_loses_nothing_and_stores_nothing_twice(broker_server, broker, publisher):
    await make_stream(broker)
    count, keys = 20_000, 700
    putting = asyncio.create_task(put_many(publisher, count, keys))
    for _ in range(3):
        await eventually(lambda: publisher.unacknowledged >= WINDOW)
        await broker_server.kill()
        await broker_server.start()
    async with asyncio.timeout(60):
        await putting
        await publisher.barrier()
    assert await stored(broker) == {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


async def test_a_paused_broker_gets_everything_again_and_stores_it_once(broker_server, broker, publisher):
    await make_stream(broker)
    broker_server.pause()
    putting = asyncio.create_task(put_many(publisher, 3000, 300))
    await eventually(lambda: publisher._last_token > WINDOW)  # all that fits is sent, and the first are sent again
    assert not putting.done()
    broker_server.resume()
    async with asyncio.timeout(30):
        await putting
        await publisher.barrier()
    assert await stored(broker) == {f"k{key}": list(range(key, 3000, 300)) for key in range(300)}


async def test_R32_put_waits_while_the_window_is_full(broker_server, publisher):
    broker_server.pause()
    putting = asyncio.create_task(put_many(publisher, 10_000, 10_000))
    await eventually(lambda: publisher.unacknowledged == WINDOW)
    await asyncio.sleep(0.1)
    assert publisher.unacknowledged == WINDOW
    putting.cancel()
    broker_server.resume()


async def test_R32_put_waits_while_the_queues_of_few_keys_are_full(broker_server, publisher):
    broker_server.pause()
    putting = asyncio.create_task(put_many(publisher, 10_000, 1))
    await eventually(lambda: publisher.unacknowledged > 4 * WINDOW)
    await asyncio.sleep(0.1)
    assert publisher.unacknowledged == 4 * WINDOW + 1
    putting.cancel()
    broker_server.resume()


async def test_without_a_stream_messages_wait_and_the_refusal_is_told(broker, publisher, seen, caplog):
    await publisher.put(message("a", 1))
    await publisher.put(message("a", 2))
    await eventually(lambda: publisher.refusal)
    assert "503" in publisher.refusal
    assert "the broker keeps refusing" in caplog.text
    assert seen.refusals["503"] >= 4
    await make_stream(broker)
    async with asyncio.timeout(10):
        await publisher.barrier()
    assert publisher.refusal == ""
    assert await stored(broker) == {"a": [1, 2]}


async def test_a_full_stream_is_back_pressure_and_goes_on_when_it_is_enlarged(broker, publisher, seen):
    options = {"discard": DiscardPolicy.NEW, "max_bytes": 20_000}
    await make_stream(broker, **options)
    putting = asyncio.create_task(put_many(publisher, 3000, 30))
    await eventually(lambda: seen.refusals["10077"] > 0)
    await eventually(lambda: publisher.unacknowledged >= 4 * WINDOW)
    assert not putting.done()
    options["max_bytes"] = 10_000_000
    await broker.jetstream.update_stream(StreamConfig(name=STREAM, subjects=["s.>"], duplicate_window=60, **options))
    async with asyncio.timeout(60):
        await putting
        await publisher.barrier()
    assert await stored(broker) == {f"k{key}": list(range(key, 3000, 30)) for key in range(30)}


async def test_one_refused_key_does_not_hold_up_the_others(broker, publisher, seen):
    await make_stream(broker)
    await publisher.put(Message("lost", "nowhere", b"", {}))
    await publisher.put(message("a", 1))
    await eventually(lambda: seen.sent_messages == 1)
    assert publisher.unacknowledged == 1


async def test_what_another_producer_has_stored_is_acknowledged_with_its_sequence(broker, publisher):
    await make_stream(broker)
    for number in (1, 2):
        await broker.jetstream.publish("s.a", b"", headers={"Nats-Msg-Id": f"a:{number}"})
    acknowledged = []
    await publisher.put(message("a", 1, acknowledged.append))
    await publisher.barrier()
    assert acknowledged == [1]


async def test_a_barrier_waits_for_what_was_put_before_and_for_nothing_else(broker_server, broker, publisher):
    await make_stream(broker)
    await publisher.barrier()
    broker_server.pause()
    await publisher.put(message("a", 1))
    barrier = asyncio.create_task(publisher.barrier())
    await asyncio.sleep(0.05)
    assert not barrier.done()
    broker_server.resume()
    async with asyncio.timeout(10):
        await barrier
