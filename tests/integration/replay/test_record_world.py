"""`isvc-sync record` where everything runs: a capture tells what registries hold, and a replay comes to the same."""

import asyncio
import json
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import pytest_asyncio

from consumer.records import Record
from replay.capture import Captured, Facts, RecordFact
from replay.files import reading
from replay.planning import Planner
from tests import eventually as waiting
from tests.cluster.processes import Guard
from tests.e2e.pipeline import Pipeline, isvc
from tests.integration.replay.recorded import BARE, ROOT, Found, command, ended, found_in, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD = ("-n", "a", "-n", "b")  # what lived before all tests; each test that changes something has a namespace of its own


async def eventually(condition, what: str):
    """Wait for a process: on a busy machine its start alone takes seconds."""
    return await waiting.eventually(condition, what, within_s=60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory):
    guard = Guard()
    async with Pipeline(tmp_path_factory.mktemp("world"), guard) as pipeline:
        pipeline.seed({"101": "1", "102": "1"})
        await lives(pipeline)
        yield pipeline
    guard.close()


async def lives(pipeline: Pipeline) -> None:
    """Let some objects live: one is relabelled, one goes, one names a model that does not exist."""
    for namespace in ("a", "b", "c", "d", "elsewhere"):
        pipeline.cluster.create_namespace(namespace)
    for name, labels in {"a/iris": ("1", "101"), "a/gone": ("2", None), "b/odd": ("999", None)}.items():
        pipeline.cluster.create(isvc(name, model=labels[0], version=labels[1]))
    await eventually(lambda: len(pipeline.records()) == 2, "both records")
    pipeline.set_labels("a/iris", model_version_id="102")
    await eventually(lambda: pipeline.record_of("a/iris")["modelVersionId"] == "102", "the new version")
    pipeline.cluster.delete("InferenceService", "a", "gone")
    await eventually(lambda: "UNDEPLOYED" in {each["desiredState"] for each in pipeline.records()}, "the end")
    await pipeline.settled()


def records_in(found: Found, at: str) -> list[RecordFact]:
    return [record for each in found.facts if each.at == at for record in each.records]


def planned(path) -> Planner:
    with reading(path) as capture:
        planner = Planner(capture.header)
        for line in capture:
            if isinstance(line, Facts):
                planner.facts(line)
            elif isinstance(line, Captured):
                planner.decide(line)
    planner.end()
    return planner


def content(records) -> dict[str, tuple]:
    """Return what records say, by what they are about: without ids and times."""
    found = {}
    for record in records:
        stamp = Record(
            record.id, record.name, record.external_id, "", record.model_id, properties=record.properties
        ).stamp
        versions = [change.version for change in stamp.history]
        said = (record.name, record.model_id, record.version_id, record.runtime, record.deployed, versions)
        found[record.external_id] = (*said, stamp.resource_version, stamp.digest, stamp.model_version)
    return found


async def test_a_capture_of_a_live_run_holds_what_a_replay_needs_and_what_is_to_come_out(tmp_path, pipeline):
    file = tmp_path / "x.jsonl.zst"
    done = await command("record", file, *OLD, "-o", "json", environ=pipeline.world.environ)
    assert done.code == 0, done.err
    found = found_in(file)
    starts = [each for each in found.facts if each.at == "start"]
    assert {model for each in starts for model in each.models} == {"1", "2"}
    assert {model for each in starts for model in each.absent_models} == {"999"}
    assert {version: model for each in starts for version, model in each.versions.items()} == {"101": "1", "102": "1"}
    assert records_in(found, "start") == [], "all were written by captured events"
    told = records_in(found, "end")
    assert {record.environment for record in told} == {"a"}
    assert json.loads(done.out)["facts"]["records"] == {"start": 0, "end": 2}
    [registry] = planned(file).registries.values()
    assert content(registry.records()) == content(told)
    assert (await command("validate", file)).code == 0


async def test_records_that_were_there_before_are_initial_facts_and_those_written_since_are_not(tmp_path, pipeline):
    pipeline.cluster.create(isvc("c/old", model="1", version="102"))
    await eventually(lambda: pipeline.record_of("c/old"), "the record of before")
    await pipeline.settled()
    file = tmp_path / "x.jsonl"
    async with running("record", file, "--follow", "-n", "c", environ=pipeline.world.environ) as process:
        await eventually(lambda: file.exists() and found_in(file).events, "the state before it")
        pipeline.cluster.create(isvc("c/new", model="3"))
        pipeline.set_labels("c/old", model_version_id="101")
        await eventually(lambda: pipeline.record_of("c/old")["modelVersionId"] == "101", "another version")
        await eventually(lambda: (pipeline.record_of("c/new") or {}).get("desiredState"), "the new record")
        last = (await pipeline.events_of("c/new"))[-1].sequence
        await eventually(lambda: found_in(file).events[-1].position.seq >= last, "all is recorded")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        assert done.code == 0, done.err
        found = found_in(file)
        assert [line.event.key.name for line in found.events if line.initial] == ["old"]
        assert [(each.name.partition("/")[0], each.version_id) for each in records_in(found, "start")] == [
            ("old", "102")
        ]
        told = records_in(found, "end")
        assert {record.name.partition("/")[0]: record.version_id for record in told} == {"old": "101", "new": ""}
        [registry] = planned(file).registries.values()
        assert content(registry.records()) == content(told)


async def test_an_anonymous_capture_is_decided_alike(tmp_path, pipeline):
    for name, more in (("x", ()), ("y", ("--anonymous",))):
        assert (await command("record", tmp_path / name, *OLD, *more, environ=pipeline.world.environ)).code == 0
    [plain], [anonymous] = (planned(tmp_path / name).registries.values() for name in ("x", "y"))
    assert [(each.model_id, each.version_id, each.deployed, each.external_id) for each in plain.records()] == [
        (each.model_id, each.version_id, each.deployed, each.external_id) for each in anonymous.records()
    ]
    assert content(anonymous.records()) == content(records_in(found_in(tmp_path / "y"), "end"))
    assert not any(word in (tmp_path / "y").read_bytes() for word in (b"iris", b"gone", b"127.0.0.1"))


async def test_a_registry_that_is_away_is_told_and_the_events_are_recorded(tmp_path, pipeline):
    environ = pipeline.world.environ | {"REGISTRY_URL": "http://127.0.0.1:9"}
    done = await command("record", tmp_path / "x.jsonl", environ=environ)
    assert done.code == 3
    assert "what it holds is not in the capture" in done.err
    found = found_in(tmp_path / "x.jsonl")
    assert (len(found.events) >= 5, found.cut) == (True, None)


async def test_a_cluster_is_recorded_as_a_producer_would_publish_it(tmp_path, pipeline):
    environ = pipeline.world.environ | {"NATS_URL": "nats://127.0.0.1:9"}
    file = tmp_path / "x.jsonl"
    done = await command("record", file, "--from-cluster", *OLD, environ=environ)
    assert done.code == 0, done.err
    found = found_in(file)
    assert sorted(str(line.event.key) for line in found.events) == ["isvc/a/iris", "isvc/b/odd"]
    assert all(line.initial and line.event.corrects == 0 for line in found.events)
    published = {line.event.uid: line.event for line in await stream(tmp_path, pipeline)}
    for line in found.events:
        event, same = line.event, published[line.event.uid]
        assert (event.digest, event.models) == (same.digest, same.models)
    assert {each.name.partition("/")[0] for each in records_in(found, "start")} == {"iris", "gone"}
    assert (await command("validate", file)).code == 0


async def stream(tmp_path, pipeline) -> list[Captured]:
    done = await command("record", tmp_path / "stream", "--no-registry", environ=pipeline.world.environ)
    assert done.code == 0, done.err
    return found_in(tmp_path / "stream").events


async def test_a_cluster_is_followed_until_it_is_stopped(tmp_path, pipeline):
    pipeline.cluster.create(isvc("d/iris", model="1"))
    await pipeline.settled()
    file = tmp_path / "x.jsonl"
    more = ("--from-cluster", "--follow", "--no-registry", "-n", "d")
    async with running("record", file, *more, environ=pipeline.world.environ) as process:
        await eventually(lambda: file.exists() and len(found_in(file).events) == 1, "the list")
        pipeline.set_labels("d/iris", model_version_id="101")
        await eventually(lambda: len(found_in(file).events) >= 2, "the change")
        pipeline.cluster.create(isvc("elsewhere/other", model="3"))
        pipeline.cluster.delete("InferenceService", "d", "iris")
        await eventually(lambda: found_in(file).events[-1].event.type == "deleted", "the delete")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        found = found_in(file)
        assert (done.code, found.cut) == (0, None), done.err
        assert {line.event.key.name for line in found.events} == {"iris"}
        assert [line.initial for line in found.events] == [True, *[False] * (len(found.events) - 1)]
        assert [line.position.seq for line in found.events] == list(range(1, len(found.events) + 1))


async def test_a_cluster_that_does_not_answer_is_told(tmp_path, pipeline):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "x", "user": {}}],
            }
        )
    )
    environ = pipeline.world.environ | {"KUBECONFIG": str(kubeconfig)}
    done = await command("record", tmp_path / "x.jsonl", "--from-cluster", "--no-registry", environ=environ)
    assert done.code == 3, done.err
    assert "kube-system" in done.err
    assert not (tmp_path / "x.jsonl").exists()


def commands_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "replay-record.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


async def kubectl(pipeline: Pipeline, words: list[str], into: Path) -> None:
    """Run kubectl for a moment, as Ctrl-C ends it; where there is none, take what one has printed.

    The consumer's log is not in a pod here.
    """
    if words[1] == "logs":
        await asyncio.to_thread(into.write_bytes, pipeline.consumer.log())
        return
    if shutil.which("kubectl") is None:
        shutil.copy(ROOT / "tests" / "captures" / "rollout.jsonl", into)
        return
    with into.open("wb") as file:
        environ = BARE | {"KUBECONFIG": pipeline.world.environ["KUBECONFIG"], "HOME": str(into.parent)}
        process = await asyncio.create_subprocess_exec(*words, stdout=file, env=environ)
        await eventually(lambda: b"iris" in into.read_bytes(), "the list")
        process.send_signal(signal.SIGINT)
        await process.wait()


async def test_every_command_of_the_page_does_what_it_says(tmp_path, pipeline):
    """record, redact, validate, stats, and kubectl get."""
    for line in commands_of_the_page():
        words = shlex.split(line)
        if words[0] == "kubectl":
            await kubectl(pipeline, words[: words.index(">")], tmp_path / words[-1])
            continue
        words = ["1s" if word == "30s" else word for word in words]  # the same, sooner
        more = ["--for", "1s"] * ("--follow" in words) + ["--force"] * (words[1] == "record")
        done = await command(*words[1:], *more, environ=pipeline.world.environ, cwd=tmp_path)
        assert done.code == 0, f"{line}: {done.err}"
    assert any(found_in(tmp_path / "story.jsonl").events), "of what kubectl printed"
    assert found_in(tmp_path / "public.jsonl.gz").header.redaction.profile == "anonymous"
