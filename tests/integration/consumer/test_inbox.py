"""The pull loop on a real nats-server that dies, forgets and is meddled with."""

import asyncio
import json
import math
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from consumer.delivery.pulls import InboxStats
from consumer.inbox import Durable, PullLoop
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_consumer
from shared.subjects import Subjects
from tests.eventually import eventually

STREAM = "ISVC_EVENTS"
KEY = ObjectKey(Kind.ISVC, "team-a", "fraud")
SUBJECTS = Subjects(prefix="isvc", cluster="c", shards=16)
SUBJECT = SUBJECTS.event(KEY)
SHARD = int(SUBJECT.split(".")[3])


@pytest.fixture
async def durable(broker):
    ensure = partial(ensure_consumer, broker.jetstream, SUBJECTS, SHARD)
    return Durable(STREAM, await ensure(), ensure)


@pytest.fixture
async def stats():
    return InboxStats()


@pytest.fixture
async def taken():
    return []


@pytest.fixture
async def pull_loop(broker, durable, taken, stats):
    loop = PullLoop(broker, durable, taken.append, stats=stats)
    yield loop
    await loop.stop()


@asynccontextmanager
async def another_client(server):
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


async def publish(broker, *bodies):
    for body in bodies:
        await broker.jetstream.publish(SUBJECT, body, headers={"ce-id": body.decode()})


def sequences(taken):
    return [delivery.sequence for delivery in taken]


async def pulling(pull_loop, stats):
    pull_loop.start()
    await eventually(lambda: stats.resets == 1)


async def test_a_message_arrives_whole(pull_loop, broker, taken):
    await publish(broker, b"one")
    pull_loop.start()
    await eventually(lambda: taken)
    delivery = taken[0]
    assert (delivery.subject, delivery.body, delivery.headers) == (SUBJECT, b"one", {"ce-id": "one"})
    assert (delivery.stream, delivery.sequence, delivery.num_delivered) == (STREAM, 1, 1)
    stored = await broker.jetstream.get_msg(STREAM, 1)
    assert delivery.timestamp_ns // 1_000_000 == int(stored.time.timestamp() * 1000)


async def test_a_look_without_a_body_arrives(pull_loop, broker, taken):
    await broker.jetstream.publish(SUBJECTS.look(KEY), b"")
    pull_loop.start()
    await eventually(lambda: taken)
    assert (taken[0].subject, taken[0].body) == (SUBJECTS.look(KEY), b"")


async def test_a_broker_killed_under_an_idle_pull_delivers_within_a_second_of_its_return(
    pull_loop, broker, nats_server, taken, stats, record_property
):
    await pulling(pull_loop, stats)
    await nats_server.kill()
    await nats_server.start()
    clock = asyncio.get_running_loop()
    returned_at = clock.time()
    async with another_client(nats_server) as client:
        await client.jetstream().publish(SUBJECT, b"one")
    await eventually(lambda: taken)
    after_s = clock.time() - returned_at
    record_property("figures", f"delivered {after_s:.2f} s after the broker's return")
    assert after_s < 1.5
    assert stats.resets == 2


async def test_a_broker_that_is_away_at_the_start_is_waited_for(pull_loop, broker, nats_server, taken, stats):
    await publish(broker, b"one")
    await nats_server.kill()
    await eventually(lambda: not broker.client.is_connected)
    pull_loop.start()
    await nats_server.start()
    await eventually(lambda: taken)


async def test_a_consumer_that_is_deleted_under_the_loop_is_created_anew(pull_loop, broker, durable, taken, stats):
    await pulling(pull_loop, stats)
    await publish(broker, b"one")
    await eventually(lambda: taken)
    await taken[0].ack()
    assert await broker.jetstream.delete_consumer(STREAM, durable.name)
    await publish(broker, b"two")
    await eventually(lambda: 2 in sequences(taken), within_s=2)
    assert stats.consumers_recreated == 1
    assert (await broker.jetstream.consumer_info(STREAM, durable.name)).config.durable_name == durable.name


async def test_a_takeover_delivers_what_the_dead_owner_held_first_and_in_order(
    pull_loop, broker, durable, nats_server, taken
):
    await publish(broker, b"1", b"2", b"3")
    async with another_client(nats_server) as dead_owner:
        held = await (await dead_owner.jetstream().pull_subscribe_bind(durable.name, STREAM)).fetch(3, timeout=5)
        assert len(held) == 3
    await publish(broker, b"4", b"5")
    pull_loop.start()
    await eventually(lambda: len(taken) == 5)
    assert sequences(taken) == [1, 2, 3, 4, 5]


async def test_a_reconnect_delivers_what_was_in_hand_again_and_in_order(broker, durable, nats_server, taken, stats):
    loop = PullLoop(broker, durable, taken.append, stats=stats)
    loop.start()
    await publish(broker, b"1", b"2", b"3")
    await eventually(lambda: len(taken) == 3)
    await nats_server.kill()
    await nats_server.start()
    async with another_client(nats_server) as client:
        for body in (b"4", b"5"):
            await client.jetstream().publish(SUBJECT, body)
    await eventually(lambda: stats.resets == 2)
    await eventually(lambda: len(taken) == 8)
    await loop.stop()
    assert sequences(taken) == [1, 2, 3, 1, 2, 3, 4, 5]
    assert stats.redelivered == 3


async def test_ten_thousand_messages_are_taken_once_each_and_nothing_is_left(broker, durable, stats, record_property):
    total = 10_000
    objects = [ObjectKey(Kind.ISVC, "team-a", f"m{number}") for number in range(20 * 250)]
    mine = [key for key in objects if f".{SHARD}." in SUBJECTS.event(key)][:200]
    for number in range(total):  # 50 per object: the stream keeps 64
        await broker.client.publish(SUBJECTS.event(mine[number % len(mine)]), b"x" * 1200)
    await eventually(partial(all_stored, broker, total))
    clock = asyncio.get_running_loop()
    numbers = []
    waiting = asyncio.Queue()
    loop = PullLoop(broker, durable, waiting.put_nowait, stats=stats)
    started_at = clock.time()
    loop.start()
    while len(numbers) < total:
        delivery = await waiting.get()
        numbers.append(delivery.sequence)
        await delivery.ack()
    took_s = clock.time() - started_at
    record_property("figures", f"{total / took_s:.0f} messages/s")
    await loop.stop()
    assert numbers == list(range(1, total + 1))
    await eventually(partial(nothing_un_acked, broker, durable))
    info = await broker.jetstream.consumer_info(STREAM, durable.name)
    assert (info.num_pending, info.num_redelivered, info.ack_floor.stream_seq) == (0, 0, total)


async def all_stored(broker, total):
    return (await broker.jetstream.stream_info(STREAM)).state.last_seq == total


async def nothing_un_acked(broker, durable):
    return (await broker.jetstream.consumer_info(STREAM, durable.name)).num_ack_pending == 0


async def test_a_callback_that_raises_costs_only_its_own_message(broker, durable, taken, stats, caplog):
    def take(delivery):
        if delivery.body == b"bad":
            raise RuntimeError("cannot take it")
        taken.append(delivery)

    loop = PullLoop(broker, durable, take, stats=stats)
    loop.start()
    await publish(broker, b"one", b"bad", b"three")
    await eventually(lambda: len(taken) == 2)
    await publish(broker, b"four")
    await eventually(lambda: len(taken) == 3)
    await loop.stop()
    assert sequences(taken) == [1, 3, 4]
    assert stats.callback_errors == 1
    assert "cannot take it" in caplog.text


async def short_durable(broker, ack_wait_s):
    config = ConsumerConfig(
        durable_name="short", filter_subject=SUBJECT, ack_policy=AckPolicy.EXPLICIT, ack_wait=ack_wait_s, max_deliver=-1
    )

    async def ensure():
        await broker.jetstream.add_consumer(STREAM, config)

    await ensure()
    return Durable(STREAM, "short", ensure)


async def test_in_progress_holds_a_message_beyond_ack_wait(broker, taken):
    ack_wait_s = 0.5
    loop = PullLoop(broker, await short_durable(broker, ack_wait_s), taken.append)
    loop.start()
    await publish(broker, b"one")
    await eventually(lambda: taken)
    for _ in range(10):  # three times ack_wait
        await taken[0].in_progress()
        await asyncio.sleep(3 * ack_wait_s / 10)
    assert sequences(taken) == [1]
    await eventually(lambda: len(taken) == 2)  # without it the message comes again: ack_wait was in force
    await loop.stop()
    assert (taken[1].sequence, taken[1].num_delivered) == (1, 2)


async def test_a_terminated_message_never_comes_again_and_says_why(
    pull_loop, broker, durable, stats, taken, nats_server
):
    advisories = []

    async def note(message):
        advisories.append(json.loads(message.data))

    async with another_client(nats_server) as client:
        await client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{STREAM}.>", cb=note)
        await client.flush()
        await pulling(pull_loop, stats)
        await publish(broker, b"one")
        await eventually(lambda: taken)
        await taken[0].terminate("model 7 does not exist")
        await eventually(lambda: advisories)
    assert advisories[0]["reason"] == "model 7 does not exist"
    assert advisories[0]["stream_seq"] == 1
    assert (await broker.jetstream.consumer_info(STREAM, durable.name)).ack_floor.stream_seq == 1


async def test_a_stopped_loop_leaves_no_pull_behind_and_may_start_again(pull_loop, broker, durable, taken, stats):
    await pulling(pull_loop, stats)
    assert await waiting_pulls(broker, durable) == 1
    await pull_loop.stop()
    assert await waiting_pulls(broker, durable) == 0
    await publish(broker, b"one")
    assert taken == []
    pull_loop.start()
    await eventually(lambda: taken)


async def waiting_pulls(broker, durable):
    return (await broker.jetstream.consumer_info(STREAM, durable.name)).num_waiting


async def test_a_stopped_loop_has_delivered_every_ack(pull_loop, broker, durable, nats_server, taken, stats):
    await publish(broker, *(str(number).encode() for number in range(50)))
    async with another_client(nats_server) as client:
        pull_loop.start()
        await eventually(lambda: len(taken) == 50)
        for delivery in taken:
            await delivery.ack()
        await pull_loop.stop()
        broker.client._transport._io_writer.transport.abort()  # whatever is not sent by now comes too late

        async def floor_is_reached():
            return (await client.jetstream().consumer_info(STREAM, durable.name)).ack_floor.stream_seq == 50

        await eventually(floor_is_reached, within_s=0.2)  # nats-py reconnects after 0.25 s at the earliest


async def test_stopping_does_not_wait_for_a_broker_that_is_away(pull_loop, broker, nats_server, stats):
    await pulling(pull_loop, stats)
    await nats_server.kill()
    await eventually(lambda: not broker.client.is_connected)
    async with asyncio.timeout(0.5):
        await pull_loop.stop()


async def test_a_restart_at_any_moment_loses_nothing(pull_loop, broker, taken, stats):
    pull_loop.start()
    for number in range(20):
        await publish(broker, str(number).encode())
        await pull_loop.stop()
        pull_loop.start()
    await eventually(lambda: set(sequences(taken)) == set(range(1, 21)))
    assert broker.client.stats["reconnects"] == 0
    assert await broker.round_trip()


async def test_a_former_owner_takes_nothing_of_what_the_reset_of_its_successor_brings_again(broker, durable, taken):
    """Else the successor meets newer messages first, and takes the older ones for old news when they come."""
    left_s, former = [math.inf], []
    loop = PullLoop(broker, msgspec.structs.replace(durable, left_s=lambda: left_s[0]), former.append)
    loop.start()
    await publish(broker, b"one", b"two")
    await eventually(lambda: len(former) == 2)
    left_s[0] = 0.0  # as a process finds it that wakes up; nobody has told its loop yet
    await eventually(partial(no_pull_waits, broker, durable.name), "the last pull of the former owner has ended")
    successor = PullLoop(broker, durable, taken.append)
    successor.start()
    await eventually(lambda: len(taken) == 2)
    await publish(broker, *(str(number).encode() for number in range(3, 51)))
    await eventually(lambda: len(taken) == 50)
    assert sequences(taken) == list(range(1, 51))
    assert sequences(former) == [1, 2]
    await loop.stop()
    await successor.stop()


async def no_pull_waits(broker, name):
    return (await broker.jetstream.consumer_info(STREAM, name)).num_waiting == 0


async def test_the_late_ack_of_a_former_owner_settles_the_message_and_nothing_else(broker, durable, taken):
    """So an ack must say something that is true whoever hears it: that the effect is done."""
    await publish(broker, b"one", b"two")
    former = []
    loop = PullLoop(broker, durable, former.append)
    loop.start()
    await eventually(lambda: len(former) == 2)
    await loop.stop()
    successor = PullLoop(broker, durable, taken.append)
    successor.start()
    await eventually(lambda: len(taken) == 2)
    await former[0].ack()
    await successor.flush()  # the server has read it
    info = await broker.jetstream.consumer_info(STREAM, durable.name)
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 1)
    for delivery in taken:
        await delivery.ack()
    await successor.flush()
    info = await broker.jetstream.consumer_info(STREAM, durable.name)
    assert (info.num_ack_pending, info.ack_floor.stream_seq, info.num_redelivered) == (0, 2, 0)
    await successor.stop()
