"""The streams and consumers that we need on a broker: made as designed, found again, or refused with the way out."""

import asyncio

import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from sandbox.broker import NatsOptions, NatsServer
from shared.broker import Broker, BrokerSettings
from shared.errors import RefusedToStartError, UnreachableError
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_consumer, ensure_streams, stream_configs, stream_names
from shared.subjects import Subjects
from tests.integration.broker.brokers import SMALL, must_not_close, settings

# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("isvc", ("ISVC_EVENTS", "ISVC_DLQ", "ISVC_LEASE")),
        ("isvc-replay-7", ("ISVC-REPLAY-7_EVENTS", "ISVC-REPLAY-7_DLQ", "ISVC-REPLAY-7_LEASE")),
    ],
)
async def test_streams_are_created_as_designed_and_found_again(server, broker, prefix, names):
    mine = settings(server.url, subject_prefix=prefix)
    assert await ensure_streams(broker.jetstream, mine) == ()
    assert await ensure_streams(broker.jetstream, mine) == ()
    found = stream_names(prefix)
    assert (found.events, found.dlq, found.lease) == names
    events, dlq, lease = [(await broker.jetstream.stream_info(name)).config for name in names]
    assert events.subjects == [f"{prefix}.*.evt.>", f"{prefix}.*.look.>", f"{prefix}.*.sync.>"]
    assert (events.max_msgs_per_subject, events.discard, events.max_age) == (64, "new", 0)
    assert (events.duplicate_window, events.max_bytes, events.deny_delete) == (600, SMALL, True)
    assert events.metadata["isvc-sync.shards"] == "16"
    assert (dlq.subjects, dlq.max_msgs_per_subject, dlq.max_age) == ([f"{prefix}.*.dlq.>"], 1, 0)
    assert (lease.max_msgs_per_subject, lease.allow_msg_ttl, lease.allow_direct) == (1, True, False)
    assert {one.storage for one in (events, dlq, lease)} == {"file"}


async def test_two_that_start_at_once_agree(server, broker):
    both = await asyncio.gather(*(ensure_streams(broker.jetstream, settings(server.url)) for _ in range(4)))
    assert both == [()] * 4


async def test_of_two_that_start_at_once_and_disagree_one_is_refused(server, broker):
    answers = await asyncio.gather(
        ensure_streams(broker.jetstream, settings(server.url, shards=16)),
        ensure_streams(broker.jetstream, settings(server.url, shards=8)),
        return_exceptions=True,
    )
    (refused,) = [answer for answer in answers if answer != ()]
    assert isinstance(refused, RefusedToStartError)
    assert "shards, and SHARDS is" in str(refused)


async def test_another_number_of_shards_is_refused_with_both_numbers_and_the_way_out(server, broker):
    await ensure_streams(broker.jetstream, settings(server.url))
    with pytest.raises(RefusedToStartError, match=r"for 16 shards, and SHARDS is 8: set SHARDS=16"):
        await ensure_streams(broker.jetstream, settings(server.url, shards=8))


async def test_a_stream_that_does_not_say_its_shards_is_refused_with_the_way_out(server, broker):
    (bare, *_) = stream_configs(settings(server.url))
    await broker.jetstream.add_stream(bare.evolve(metadata=None))
    with pytest.raises(RefusedToStartError, match=r"--metadata isvc-sync.shards=16"):
        await ensure_streams(broker.jetstream, settings(server.url))


async def test_what_an_operator_enlarged_is_a_warning_and_stays(server, broker):
    await ensure_streams(broker.jetstream, settings(server.url))
    (mine, *_) = stream_configs(settings(server.url))
    await broker.jetstream.update_stream(mine.evolve(max_bytes=2 * SMALL))
    assert await ensure_streams(broker.jetstream, settings(server.url)) == (
        f"ISVC_EVENTS: max_bytes is {2 * SMALL}, isvc-sync would set {SMALL}",
    )
    assert (await broker.jetstream.stream_info("ISVC_EVENTS")).config.max_bytes == 2 * SMALL


async def test_a_stream_that_does_not_take_our_subjects_is_refused(server, broker):
    (mine, *_) = stream_configs(settings(server.url))
    await broker.jetstream.add_stream(mine.evolve(subjects=["isvc.*.evt.>"]))
    with pytest.raises(RefusedToStartError, match=r"does not take the subjects isvc\.\*\.look\.>, isvc\.\*\.sync\.>"):
        await ensure_streams(broker.jetstream, settings(server.url))


async def test_subjects_that_belong_to_another_stream_are_told_with_the_way_out(server, broker):
    await broker.jetstream.add_stream(StreamConfig(name="OTHER", subjects=["isvc.>"]))
    with pytest.raises(RefusedToStartError, match=r"ISVC_EVENTS: subjects overlap .*SUBJECT_PREFIX"):
        await ensure_streams(broker.jetstream, settings(server.url))


async def test_a_server_that_cannot_hold_the_stream_is_told_with_the_setting(server, broker):
    huge = BrokerSettings(nats_url=(server.url,), stream_max_bytes=1 << 60)
    with pytest.raises(RefusedToStartError, match="STREAM_MAX_BYTES"):
        await ensure_streams(broker.jetstream, huge)


async def test_a_server_without_jetstream_is_unreachable_for_us(tmp_path):
    async with (
        NatsServer(tmp_path, NatsOptions(jetstream=False)) as plain,
        Broker(settings(plain.url), on_closed=must_not_close) as broker,
    ):
        with pytest.raises(UnreachableError, match="setting up the stream ISVC_EVENTS: JetStream did not answer"):
            await ensure_streams(broker.jetstream, settings(plain.url))


# --- consumers ------------------------------------------------------------------------------------------------------


CLUSTER = Subjects("isvc", "my.cluster", 16)  # the dot is escaped


async def test_a_shards_consumer_reads_its_events_and_looks_and_nothing_else(server, broker):
    js = broker.jetstream
    await ensure_streams(js, settings(server.url))
    assert await ensure_consumer(js, CLUSTER, 3) == CLUSTER.durable(3)
    keys = [ObjectKey(Kind.ISVC, "ns", f"name-{number}") for number in range(60)]
    others = Subjects("isvc", "other", 16)
    for key in keys:
        for subject in (CLUSTER.event(key), CLUSTER.look(key), others.event(key), CLUSTER.dead_letter(key)):
            await js.publish(subject, b"")
    await js.publish(CLUSTER.sync(Kind.ISVC), b"")
    ours = {subject for key in keys for subject in (CLUSTER.event(key), CLUSTER.look(key)) if ".3.isvc." in subject}
    assert ours
    assert (await js.consumer_info("ISVC_EVENTS", CLUSTER.durable(3))).num_pending == len(ours)
    reader = await js.pull_subscribe_bind(CLUSTER.durable(3), "ISVC_EVENTS")
    assert {message.subject for message in await reader.fetch(len(ours))} == ours


async def test_a_consumer_is_found_again_with_its_position_and_its_limits_set_back(server, broker):
    js = broker.jetstream
    await ensure_streams(js, settings(server.url))
    name = await ensure_consumer(js, CLUSTER, 0)
    made = (await js.consumer_info("ISVC_EVENTS", name)).config
    assert (made.ack_policy, made.ack_wait, made.max_deliver, made.max_ack_pending) == ("explicit", 30, -1, 10_000)
    await js.add_consumer("ISVC_EVENTS", made.evolve(ack_wait=5, max_deliver=3))
    await ensure_consumer(js, CLUSTER, 0)
    assert (await js.consumer_info("ISVC_EVENTS", name)).config == made


async def test_a_consumer_of_our_name_that_reads_something_else_is_refused(server, broker):
    js = broker.jetstream
    await ensure_streams(js, settings(server.url))
    await js.add_consumer("ISVC_EVENTS", ConsumerConfig(durable_name=CLUSTER.durable(0), filter_subject="isvc.*.evt.>"))
    with pytest.raises(RefusedToStartError, match="has filter_subject"):
        await ensure_consumer(js, CLUSTER, 0)


async def test_a_broker_that_is_away_is_unreachable(server, broker):
    await ensure_streams(broker.jetstream, settings(server.url))
    impatient = broker.client.jetstream(timeout=0.2)
    server.pause()
    with pytest.raises(UnreachableError, match="setting up the consumer"):
        await ensure_consumer(impatient, CLUSTER, 0)
    server.resume()
