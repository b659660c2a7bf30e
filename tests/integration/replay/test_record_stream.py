"""`isvc-sync record` of a real event stream, without registries."""

import asyncio
import json
import signal
import sys

import pytest
from msgspec.structs import replace

from replay.capture import Captured
from sandbox.broker import NatsServer
from shared.broker import Broker, BrokerSettings
from shared.events import EventType
from shared.objects import Kind
from shared.streams import ensure_streams
from tests import eventually as waiting
from tests.integration.replay.recorded import BARE, STREAM, SUBJECTS, command, ended, found_in, publish, running
from tests.unit.replay.captures import CLUSTER_ID, first_event, story


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path / "nats") as running:
        yield running


@pytest.fixture
async def broker(server):
    settings = BrokerSettings(nats_url=(server.url,))
    async with Broker(settings, on_closed=lambda: None) as broker:
        await ensure_streams(broker.jetstream, settings)
        yield broker


@pytest.fixture
def environ(server):
    return {"NATS_URL": server.url, "CLUSTER_NAME": "prod"}


def events_of(name: str) -> list[Captured]:
    return [line for line in story(name) if isinstance(line, Captured)]


async def eventually(condition, what: str):
    """Wait for a process: on a busy machine its start alone takes seconds."""
    return await waiting.eventually(condition, what, within_s=60.0)


LIVES = events_of("create-ready-delete")
OTHERS = events_of("labels-come-and-go")
LLM = events_of("llm-inference-service")


def said(lines: list[Captured]) -> list[tuple]:
    return [(line.event, json.loads(line.data)) for line in lines]


def version(number: int, **changes) -> Captured:
    """Return another state of an object that came before the recording."""
    first = first_event()
    event = replace(first.event, type=EventType.UPDATED, resource_version=str(number), **changes)
    return replace(first, event=event)


async def record(tmp_path, environ, *arguments) -> tuple:
    done = await command("record", tmp_path / "x.jsonl", "--no-registry", *arguments, environ=environ)
    assert (tmp_path / "x.jsonl").exists(), done.err
    return done, found_in(tmp_path / "x.jsonl")


async def test_the_history_is_recorded_in_order_and_ends_with_a_footer(tmp_path, broker, environ):
    await publish(broker, *LIVES, *LLM)
    done, found = await record(tmp_path, environ)
    assert (done.code, done.err) == (0, "")
    assert said(found.events) == said([*LIVES, *LLM])
    assert [line.position.seq for line in found.events] == list(range(1, len(LIVES) + len(LLM) + 1))
    assert {line.position.subject for line in found.events[:1]} == {SUBJECTS.event(LIVES[0].event.key)}
    assert all(line.position.time.endswith("Z") for line in found.events)
    assert found.cut is None
    assert (found.header.source, found.header.stream, found.header.first_seq) == ("stream", STREAM, 1)
    assert (found.header.cluster, found.header.cluster_id) == ("prod", CLUSTER_ID)


async def test_what_labels_name_is_told_when_no_registry_is_asked(tmp_path, broker, environ):
    await publish(broker, *LIVES)
    _, found = await record(tmp_path, environ)
    assert [(each.models, each.versions) for each in found.facts] == [(("1",), {"1": "1"})]


async def test_an_empty_stream_is_a_capture_without_events(tmp_path, broker, environ):
    done, found = await record(tmp_path, environ)
    assert (done.code, found.events, found.cut) == (0, [], None)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--namespace", "credit"), LIVES),
        (("-n", "credit", "--only", "credit/scorer", "--kind", "isvc"), LIVES),
        (("--kind", "llmisvc"), LLM),
        (("--only", f"{OTHERS[0].event.key.namespace}/{OTHERS[0].event.key.name}", "--only", "no/one"),
         [line for line in OTHERS if line.event.key == OTHERS[0].event.key]),
        (("-n", "nowhere"), []),
    ],
)  # fmt: skip
async def test_only_what_was_chosen_is_recorded(tmp_path, broker, environ, arguments, wanted):
    await publish(broker, *LIVES, *LLM, *OTHERS)
    done, found = await record(tmp_path, environ, *arguments)
    assert done.code == 0
    assert said(found.events) == said(wanted)


async def test_a_recording_from_the_middle_begins_with_the_state_before_it(tmp_path, broker, environ):
    gone = replace(first_event(), event=replace(first_event().event, key=replace(LIVES[0].event.key, name="gone")))
    deleted = replace(gone, event=replace(gone.event, type=EventType.DELETED))
    await publish(broker, gone, LLM[0], *LIVES[:3], deleted, *LIVES[3:])
    done, found = await record(tmp_path, environ, "--from", "7")
    assert done.code == 0
    assert said(found.events) == said([LLM[0], LIVES[2], *LIVES[3:]])
    assert [line.initial for line in found.events] == [True, True, *[False] * len(LIVES[3:])]
    assert [line.position.seq for line in found.events[:3]] == [2, 5, 7]
    assert found.header.first_seq == 7


async def test_a_recording_ends_where_it_is_told_to_by_sequence_or_time(tmp_path, broker, environ):
    await publish(broker, *LIVES)
    _, found = await record(tmp_path, environ, "--until", "3")
    assert said(found.events) == said(LIVES[:3])
    times = [line.position.time for line in found.events]
    await command("record", tmp_path / "y", "--no-registry", "--until", times[1], environ=environ)
    assert said(found_in(tmp_path / "y").events) == said(LIVES[:2])
    await command("record", tmp_path / "z", "--no-registry", "--from", times[1], "-o", "json", environ=environ)
    assert [line.initial for line in found_in(tmp_path / "z").events] == [True, *[False] * (len(LIVES) - 1)]


async def test_the_first_event_that_is_left_of_a_longer_life_is_initial(tmp_path, broker, environ):
    await publish(broker, first_event(), *(version(1000 + number) for number in range(70)), LLM[0])
    _, found = await record(tmp_path, environ)
    assert len(found.events) == 65
    assert [line.initial for line in found.events] == [True, *[False] * 64]


async def test_looks_and_sync_markers_are_no_events(tmp_path, broker, environ):
    await broker.jetstream.publish(SUBJECTS.look(LIVES[0].event.key), b"")
    await broker.jetstream.publish(SUBJECTS.sync(Kind.ISVC), b"{}")
    await publish(broker, LIVES[0])
    done, found = await record(tmp_path, environ)
    assert (done.code, len(found.events)) == (0, 1)


async def test_a_message_that_is_no_event_is_left_out_and_told(tmp_path, broker, environ):
    await broker.jetstream.publish(SUBJECTS.event(LIVES[0].event.key), b"{}")
    await publish(broker, replace(LIVES[0], data=b"{}"), *LIVES)
    done, found = await record(tmp_path, environ, "-o", "json")
    assert done.code == 1
    assert "Message 1 was left out: header ce-" in done.err
    assert "An event was left out: " in done.err
    assert json.loads(done.out)["leftOut"] == 2
    assert said(found.events) == said(LIVES)


async def test_what_a_lax_producer_published_is_reduced(tmp_path, broker, environ):
    raw = json.loads(LIVES[0].data)
    raw["spec"]["predictor"]["model"]["env"] = [{"name": "TOKEN", "value": "hush"}]
    await publish(broker, replace(LIVES[0], data=json.dumps(raw).encode()))
    done, found = await record(tmp_path, environ)
    assert done.code == 0
    assert said(found.events) == said(LIVES[:1])
    assert b"hush" not in (tmp_path / "x.jsonl").read_bytes()


async def test_an_anonymous_recording_is_a_capture_without_names(tmp_path, broker, environ):
    await publish(broker, *LIVES)
    done, found = await record(tmp_path, environ, "--anonymous", "--salt", "s")
    assert done.code == 0
    data = (tmp_path / "x.jsonl").read_bytes()
    assert not any(word in data for word in (b"credit", b"scorer", b'"prod"', b".prod."))
    assert [line.event.uid for line in found.events] == [line.event.uid for line in LIVES]
    assert (await command("validate", tmp_path / "x.jsonl")).code == 0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_following_records_what_comes_until_it_is_stopped(tmp_path, broker, environ, stop):
    await publish(broker, LLM[0], *LIVES[:2])
    file = tmp_path / "x.jsonl"
    async with running("record", file, "--no-registry", "--follow", environ=environ) as process:
        await eventually(lambda: file.exists() and len(found_in(file).events) == 2, "the state before it")
        await publish(broker, *LIVES[2:])
        await eventually(lambda: len(found_in(file).events) == 2 + len(LIVES[2:]), "flushed while it goes on")
        assert found_in(file).cut is not None
        process.send_signal(stop)
        done = await ended(process)
        found = found_in(file)
        assert (done.code, found.cut) == (0, None), done.err
        assert said(found.events) == said([LLM[0], LIVES[1], *LIVES[2:]])
        assert [line.initial for line in found.events] == [True, True, *[False] * len(LIVES[2:])]


async def test_following_from_the_beginning_records_history_and_what_comes(tmp_path, broker, environ):
    await publish(broker, *LIVES[:2])
    file = tmp_path / "x.jsonl"
    async with running("record", file, "--no-registry", "--follow", "--from", "1", environ=environ) as process:
        await eventually(lambda: file.exists() and len(found_in(file).events) == 2, "history")
        await publish(broker, *LIVES[2:])
        await eventually(lambda: len(found_in(file).events) == len(LIVES), "what comes")
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).code == 0
        assert said(found_in(file).events) == said(LIVES)


async def test_following_ends_by_itself_after_a_time(tmp_path, broker, environ):
    done, found = await record(tmp_path, environ, "--for", "1s")
    assert (done.code, found.cut) == (0, None)


async def test_following_survives_a_restart_of_the_broker(tmp_path, server, broker, environ):
    file = tmp_path / "x.jsonl"
    async with running("record", file, "--no-registry", "--follow", environ=environ) as process:
        await eventually(file.exists, "the file")
        await publish(broker, *LIVES[:2])
        await eventually(lambda: len(found_in(file).events) == 2, "before")
        await server.kill()
        await server.start()
        await eventually(lambda: _published(broker, LIVES[2:]), "the broker is back")
        await eventually(lambda: len(found_in(file).events) == len(LIVES), "after")
        process.send_signal(signal.SIGINT)
        assert (await ended(process)).code == 0
        assert said(found_in(file).events) == said(LIVES)


async def _published(broker, lines) -> bool:
    if not broker.client.is_connected:
        return False
    await publish(broker, *lines)
    return True


async def test_a_recorder_that_is_killed_leaves_what_it_had(tmp_path, broker, environ):
    file = tmp_path / "x.jsonl.zst"
    async with running("record", file, "--no-registry", "--follow", environ=environ) as process:
        await eventually(file.exists, "the file")
        await publish(broker, *LIVES)
        await eventually(lambda: len(found_in(file).events) == len(LIVES), "flushed")
        process.kill()
        await ended(process)
        assert len(found_in(file).events) == len(LIVES)
        assert found_in(file).cut is not None
        assert (await command("validate", file)).code == 3


async def test_no_file_is_made_where_no_broker_answers(tmp_path, environ, server):
    await server.kill()
    done = await command("record", tmp_path / "x", "--no-registry", environ=environ)
    assert done.code == 3
    assert "did not let us in within 5 s" in done.err
    assert not (tmp_path / "x").exists()


async def test_no_file_is_made_where_there_is_no_stream(tmp_path, environ):
    done = await command("record", tmp_path / "x", "--no-registry", environ=environ)
    assert done.code == 3
    assert "stream" in done.err
    assert not (tmp_path / "x").exists()


async def test_a_file_that_exists_is_not_written_over(tmp_path, broker, environ):
    (tmp_path / "x.jsonl").write_bytes(b"mine")
    done = await command("record", tmp_path / "x.jsonl", "--no-registry", environ=environ)
    assert done.code == 2
    assert "exists: choose another name, or --force to write over it." in done.err
    assert (tmp_path / "x.jsonl").read_bytes() == b"mine"
    done, found = await record(tmp_path, environ, "--force")
    assert (done.code, found.cut) == (0, None)


async def test_ten_thousand_events_are_recorded_in_flat_memory(tmp_path, broker, environ, record_property):
    """Against a tenth of them, with as many objects: what grows with the stream would show."""
    lines = [
        version(1000 + number, key=replace(first_event().event.key, name=f"m-{number % 300}"), uid=f"u-{number % 300}")
        for number in range(10_000)
    ]
    await _flood(broker, lines[:1000])
    few_kib = await _recorded_kib(tmp_path / "few.jsonl", environ)
    await _flood(broker, lines[1000:])
    many_kib = await _recorded_kib(tmp_path / "many.jsonl", environ)
    assert len(found_in(tmp_path / "few.jsonl").events) == 1000
    assert len(found_in(tmp_path / "many.jsonl").events) == 10_000
    record_property("figures", f"recording 1,000 events took {few_kib} KiB at most, 10,000 took {many_kib} KiB")
    assert many_kib < few_kib + 8 * 1024, "they are 16 MB"


async def _flood(broker, lines) -> None:
    for number in range(0, len(lines), 200):
        await asyncio.gather(*(publish(broker, line) for line in lines[number : number + 200]))


async def _recorded_kib(file, environ) -> int:
    code = (
        "import resource, sys; from cli.__main__ import main\ntry: main()\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "record", str(file), "--no-registry"),
        env=BARE | environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return int(err.split()[-1])
