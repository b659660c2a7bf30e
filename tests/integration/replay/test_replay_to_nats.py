"""`isvc-sync replay --to nats://`: streams of its own, marked events, and nothing on the subjects of production."""

import asyncio
import shlex
import signal
from contextlib import AsyncExitStack

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from cli.demo.processes import Child
from cli.replaying.stages import Order, open_stage
from replay.files import reading
from replay.target.choice import Target, TargetKind, guise
from replay.target.nats import ReplayStreams
from sandbox.broker import NatsServer
from sandbox.world import Options, world
from shared import events
from shared.broker import Broker, BrokerSettings
from shared.streams import ensure_streams
from tests.eventually import eventually
from tests.integration.replay.commands import ended, replay, started
from tests.unit.replay.replayed import CLUSTER_ID, HEADER, START, story, write

EVENTS = "ISVC-REPLAY-TUESDAY_EVENTS"
START_S = 60.0  # of a process on a machine that has much to do
PRODUCTION = {"ISVC_EVENTS", "ISVC_DLQ", "ISVC_LEASE"}
OWN = {EVENTS, "ISVC-REPLAY-TUESDAY_DLQ", "ISVC-REPLAY-TUESDAY_LEASE"}


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats") as running:
        yield running


@pytest.fixture
async def js(server):
    """JetStream on a server that production uses, too."""
    async with Broker(BrokerSettings(nats_url=(server.url,)), on_closed=lambda: None) as broker:
        await ensure_streams(broker.jetstream, BrokerSettings(nats_url=(server.url,)))
        yield broker.jetstream


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl", [START, *story()])


async def streams(js) -> set[str]:
    return {info.config.name for info in await js.streams_info()}


async def held(js, stream: str) -> int:
    return (await js.stream_info(stream)).state.messages


async def test_nothing_reaches_the_subjects_of_production(server, js, capture):
    listener = await nats.connect(server.url)
    heard = await listener.subscribe("isvc.>")
    await listener.flush()
    done = await replay(capture, "--to", server.url, "--keep", "--name", "tuesday")
    assert done.code == 0, done.err
    assert await streams(js) == PRODUCTION | OWN
    assert (await held(js, EVENTS), [await held(js, each) for each in sorted(PRODUCTION)]) == (5, [0, 0, 0])
    await listener.flush()
    assert heard.pending_msgs == 0
    await listener.close()


async def test_events_are_marked_and_in_the_guise_of_the_replay(server, js, capture):
    await replay(capture, "--to", server.url, "--keep", "--name", "tuesday")
    with reading(capture) as lines:
        wanted = [line.event.key for line in lines if hasattr(line, "event")]
    messages = [await js.get_msg(EVENTS, seq) for seq in range(1, 6)]
    found = [events.decode(message.headers) for message in messages]
    assert [each.key for each in found] == wanted
    assert {message.headers["ce-replayed"] for message in messages} == {"true"}
    assert {each.cluster_id for each in found} == {"isvc-replay-tuesday"}
    assert not {each.uid for each in found} & {"u-1", "u-2"}
    assert all(CLUSTER_ID.encode() not in message.data for message in messages)


async def test_who_reads_gets_everything_and_then_the_streams_are_gone(server, js, capture):
    async with started(capture, "--to", server.url, "--name", "tuesday") as process:
        await eventually(lambda: _is_there(js), "the stream of the replay", START_S)
        await js.add_consumer(EVENTS, ConsumerConfig(durable_name="mine", ack_policy=AckPolicy.EXPLICIT))
        mine = await js.pull_subscribe_bind("mine", EVENTS)
        taken = 0
        while taken < 5:
            for message in await mine.fetch(5, timeout=10):
                assert process.returncode is None, "it waits for what is not acknowledged"
                await message.ack()
                taken += 1
        done = await ended(process)
        assert (done.code, await streams(js)) == (0, PRODUCTION), done.err


async def test_a_real_consumer_with_the_told_variables_records_the_events(server, capture, tmp_path):
    async with world(tmp_path / "world", Options(broker=False, kserve=False)) as own:
        own.registry.seed(registered_models=[{"id": "1", "name": "iris"}])
        home = own.cluster.get("Namespace", "", "kube-system")
        chosen = ("--name", "tuesday", "--cluster-id", home["metadata"]["uid"])
        async with started(capture, "--to", server.url, *chosen) as process:
            told = (await process.stderr.readline()).decode()
            variables = dict(word.split("=", 1) for word in shlex.split(told.partition("needs: ")[2]))
            environ = own.environ | {"NATS_URL": server.url} | variables
            consumer = await Child.start("consumer", ["consumer"], environ, tmp_path / "consumer.log")
            try:
                done = await ended(process)
            finally:
                await consumer.end()
            assert done.code == 0, done.err
            found = own.registry.records("inference_services")
            assert {each["name"].split("/")[0]: each["desiredState"] for each in found} == {
                "iris": "UNDEPLOYED",
                "other": "DEPLOYED",
            }


async def test_ctrl_c_leaves_no_stream_behind(server, js, capture):
    async with started(capture, "--to", server.url, "--name", "tuesday") as process:
        await eventually(lambda: _is_there(js), "the stream of the replay", START_S)
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        assert (done.code, await streams(js)) == (130, PRODUCTION)
        assert "Traceback" not in done.err


async def test_an_interruption_while_the_streams_are_made_leaves_none_behind(server, js, monkeypatch):
    made = asyncio.Event()

    async def open_slowly(streams):
        await ensure_streams(streams._broker.jetstream, streams._settings)
        made.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(ReplayStreams, "open", open_slowly)
    target = Target(TargetKind.NATS, server.url)
    order = Order(
        target=target,
        guise=guise("tuesday", target, HEADER),
        header=HEADER,
        wait_s=60,
        keep=False,
        environ={},
        say=lambda _: None,
    )
    async with AsyncExitStack() as stack:
        opening = asyncio.create_task(open_stage(order, stack))
        await made.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert await streams(js) == PRODUCTION


async def test_ctrl_c_in_the_middle_of_playing_leaves_no_stream_behind(server, js, tmp_path):
    capture = write(tmp_path / "slow.jsonl", [START, *story()])
    async with started(capture, "--to", server.url, "--name", "tuesday", "--speed", "0.001x") as process:
        await eventually(lambda: _is_there(js), "the stream of the replay", START_S)
        await js.add_consumer(EVENTS, ConsumerConfig(durable_name="mine", ack_policy=AckPolicy.EXPLICIT))
        await eventually(lambda: held(js, EVENTS), "the first event", START_S)
        process.send_signal(signal.SIGTERM)
        done = await ended(process)
        assert (done.code, await streams(js)) == (130, PRODUCTION)


async def test_nobody_who_reads_is_told_in_time(server, js, capture):
    done = await replay(capture, "--to", server.url, "--name", "tuesday", "--wait-s", 0.3)
    assert (done.code, await streams(js)) == (3, PRODUCTION)
    assert "nobody has come to read ISVC-REPLAY-TUESDAY_EVENTS; --keep publishes without waiting" in done.err


async def test_what_is_not_acknowledged_in_time_is_told(server, js, capture):
    async with started(capture, "--to", server.url, "--name", "tuesday", "--wait-s", 2) as process:
        await eventually(lambda: _is_there(js), "the stream of the replay", START_S)
        await js.add_consumer(EVENTS, ConsumerConfig(durable_name="mine", ack_policy=AckPolicy.EXPLICIT))
        done = await ended(process)
        assert (done.code, await streams(js)) == (3, PRODUCTION)
        assert "After 2 s events are still under way" in done.err


async def test_a_second_replay_of_a_name_is_refused_and_leaves_the_first_alone(server, js, capture):
    await replay(capture, "--to", server.url, "--keep", "--name", "tuesday")
    done = await replay(capture, "--to", server.url, "--name", "tuesday")
    assert done.code == 2
    assert "holds 5 events of another replay: give another --name" in done.err
    assert await held(js, EVENTS) == 5


async def test_a_broker_that_does_not_answer_exits_3(capture):
    done = await replay(capture, "--to", "nats://127.0.0.1:9")
    assert done.code == 3
    assert "NATS at nats://127.0.0.1:9 did not let us in" in done.err


async def _is_there(js) -> bool:
    return await streams(js) >= OWN
