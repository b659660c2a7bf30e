"""`isvc-sync record --log`: what consumers did, by their own logs, where everything runs and something goes wrong."""

import asyncio
import json
from pathlib import Path

import pytest
import pytest_asyncio

from replay.capture import Action, Captured
from replay.files import reading
from sandbox.faults import Fault
from tests import eventually as waiting
from tests.cluster.processes import Guard
from tests.e2e.pipeline import ID, STANDARD, Pipeline, isvc
from tests.integration.replay.recorded import command, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CREATES = Fault(method="POST", path=".*/inference_services", error_rate=1.0, error_status=503, next_requests=1)


class World:
    """A pipeline whose consumer met a registry that refused once, and an event that can never succeed."""

    def __init__(self, pipeline: Pipeline, directory: Path) -> None:
        self.pipeline = pipeline
        self.log = directory / "consumer.log"

    async def record(self, file: Path, *more: object):
        return await command("record", file, *more, environ=self.pipeline.world.environ)


async def eventually(condition, what: str):
    return await waiting.eventually(condition, what, within_s=60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory):
    guard, directory = Guard(), tmp_path_factory.mktemp("world")
    async with Pipeline(directory, guard, environ={"LOG_LEVEL": "DEBUG"}) as pipeline:
        pipeline.seed({"101": "1"})
        pipeline.registry.faults.set(CREATES)
        pipeline.cluster.create_namespace("team-a")
        pipeline.cluster.create(isvc("team-a/iris", model="1", version="101", annotations=STANDARD))
        await eventually(lambda: pipeline.registry.faults.injected["error"] == 1, "the registry refuses")
        await eventually(lambda: ID in pipeline.object("team-a/iris")["metadata"]["labels"], "the id")
        pipeline.cluster.create(isvc("team-a/odd", model="999"))
        pipeline.cluster.delete("InferenceService", "team-a", "iris")
        await eventually(lambda: [each["desiredState"] for each in pipeline.records()] == ["UNDEPLOYED"], "the end")
        await pipeline.settled()
        yield World(pipeline, directory)
    guard.close()


def lines_in(file: Path, kind: type) -> list:
    with reading(file) as capture:
        return [line for line in capture if isinstance(line, kind)]


def done_to(file: Path, name: str) -> list[Action]:
    return [action for action in lines_in(file, Action) if action.object == f"isvc/team-a/{name}"]


async def test_every_action_is_told_with_its_event_status_and_duration(tmp_path, world):
    file = tmp_path / "x.jsonl"
    done = await world.record(file, "--log", world.log)
    assert done.code == 0, done.err
    places = {line.position.seq: str(line.event.key) for line in lines_in(file, Captured)}
    found = done_to(file, "iris")
    assert all(places[action.event] == action.object for action in found if action.event)
    assert {action.member for action in found} == {"consumer-0"}
    assert [action.time for action in found] == sorted(action.time for action in found)
    told = [(action.kind, action.status) for action in found]
    assert told[:2] == [("CreateRecord", 503), ("retry", 0)]
    assert ("CreateRecord", 201) in told[2:]
    assert ("PatchObject", 200) in told
    assert told[-2:] == [("UpdateRecord", 200), ("ack", 0)], "the delete"
    assert all(action.ms > 0 for action in found if action.status)
    assert all(action.reason for action in found if action.kind == "CreateRecord")
    assert (await command("validate", file)).code == 0


async def test_the_timeline_of_such_a_capture_tells_latency_redelivery_and_dead_letter(tmp_path, world):
    file, page = tmp_path / "x.jsonl", tmp_path / "x.html"
    assert (await world.record(file, "--log", world.log)).code == 0
    assert (await command("timeline", file, "-o", page)).code == 0
    assert "dead" in {action.kind for action in done_to(file, "odd")}
    shown = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    assert sum(shown["events"]["retries"]) >= 1
    assert all(latency is not None for latency in shown["events"]["latency"])


async def test_explain_tells_what_was_done(tmp_path, world):
    file = tmp_path / "x.jsonl"
    assert (await world.record(file, "--log", world.log)).code == 0
    explained = await command("explain", "team-a/iris", "--from", file)
    assert "done: CreateRecord, status 503" in explained.out
    assert "done: CreateRecord, status 201" in explained.out
    assert "by consumer-0" in explained.out


async def test_only_what_concerns_the_recorded_objects_is_taken(tmp_path, world):
    file = tmp_path / "x.jsonl"
    assert (await world.record(file, "--only", "team-a/odd", "--log", world.log)).code == 0
    assert {action.object for action in lines_in(file, Action)} == {"isvc/team-a/odd"}


async def test_an_anonymous_capture_names_nobody_in_its_actions(tmp_path, world):
    file = tmp_path / "x.jsonl"
    assert (await world.record(file, "--anonymous", "--log", world.log)).code == 0
    assert {action.kind for action in lines_in(file, Action)} >= {"CreateRecord", "retry", "dead"}
    assert not any(name in file.read_bytes() for name in (b"iris", b"odd", b"team-a", b"consumer-0"))


async def test_a_log_is_read_from_standard_input_packed_or_in_parts(tmp_path, world):
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    assert (await world.record(whole, "--log", world.log)).code == 0
    text = world.log.read_bytes()
    middle = text.index(b"\n", len(text) // 2) + 1
    parts = tmp_path / "first.log", tmp_path / "second.log"
    for part, content in zip(parts, (text[:middle], text[middle:]), strict=True):
        part.write_bytes(content)
    assert (await world.record(cut, "--log", parts[0], "--log", parts[1])).code == 0
    assert lines_in(cut, Action) == lines_in(whole, Action)
    piped = tmp_path / "piped.jsonl"
    async with running("record", piped, "--log", "-", environ=world.pipeline.world.environ) as process:
        _, err = await asyncio.wait_for(process.communicate(text), 60)
    assert process.returncode == 0, err
    assert lines_in(piped, Action) == lines_in(whole, Action)


async def test_a_log_that_is_no_json_is_told_and_the_rest_is_recorded(tmp_path, world):
    file, log = tmp_path / "x.jsonl", tmp_path / "text.log"
    log.write_text("2026-12-01T10:00:00.000Z INFO    consumer.act: decided object=isvc/team-a/iris\n")
    done = await world.record(file, "--log", log)
    assert done.code == 3
    assert f"{log} holds no line of a log in JSON: run the consumers with LOG_FORMAT=json." in done.err
    assert len(lines_in(file, Captured)) >= 3


async def test_a_log_about_something_else_is_told(tmp_path, world):
    file, log = tmp_path / "x.jsonl", tmp_path / "other.log"
    log.write_text('{"time": "2026-12-01T10:00:00.000Z", "message": "decided", "sequence": 1, "object": "isvc/x/y"}\n')
    done = await world.record(file, "--log", log)
    assert (done.code, lines_in(file, Action)) == (0, [])
    assert "The logs tell of nothing that was done about these events." in done.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--log", "absent.log"), "absent.log: No such file or directory"),
        (("--log", "tests"), "tests: Is a directory"),
        (("--log", "README.md", "--from-cluster"), "--log goes with the stream"),
        (("--log", "README.md", "--from-watch", "README.md"), "--log goes with the stream"),
        (("--log", "-", "--follow"), "with --follow and --for, name a file"),
    ],
)
async def test_logs_that_cannot_be_used_are_refused_before_any_work(tmp_path, world, options, sentence):
    file = tmp_path / "x.jsonl"
    done = await world.record(file, *options)
    assert (done.code, file.exists()) == (2, False)
    assert sentence in done.err


async def test_no_capture_is_written_over_the_log_that_it_reads(world):
    before = world.log.read_bytes()
    done = await world.record(world.log, "--force", "--log", world.log)
    assert done.code == 2
    assert "cannot be written over while it is read" in done.err
    assert world.log.read_bytes().startswith(before)
