"""`isvc-sync explain` against a world that runs: sandbox, real broker, real producer and consumer.

Most of it in this process, since a start of the command takes longer than what is tested; a few as their users run it.
"""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from cli.replaying.explain import code_of
from cli.replaying.explaining import live_of
from shared.objects import Kind, ObjectKey
from tests.cluster.processes import Guard
from tests.e2e.commands import BARE, Done, command
from tests.e2e.pipeline import PREFIX, STANDARD, Pipeline, isvc
from tests.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

KNATIVE = {"serving.kserve.io/deploymentMode": "Knative"}


async def explain(pipeline: Pipeline, *arguments: str, **environ: str) -> Done:
    return await command(pipeline, "explain", *arguments, **environ)


async def told(pipeline: Pipeline, name: str, *kinds: Kind) -> dict[str, Any]:
    """Return what programs are told, with the exit code as `code`."""
    namespace, _, short = name.partition("/")
    keys = tuple(ObjectKey(kind, namespace, short) for kind in kinds or tuple(Kind))
    found, *_ = await live_of(keys, pipeline.world.environ)
    return msgspec.to_builtins(found) | {"code": code_of(found)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pipeline(tmp_path_factory):
    guard = Guard()
    async with Pipeline(tmp_path_factory.mktemp("explain"), guard) as running:
        running.seed({"3": "1"})
        yield running
    guard.close()


async def recorded(pipeline: Pipeline, name: str) -> dict[str, Any]:
    return await eventually(lambda: pipeline.record_of(name), f"{name} is recorded")


async def linked(pipeline: Pipeline, name: str) -> None:
    await eventually(lambda: pipeline.id_label(name), f"{name} carries its id")
    await pipeline.settled()


async def test_an_object_that_is_recorded_is_up_to_date(pipeline):
    pipeline.cluster.create(isvc("team-a/m-1", model="1", version="3", annotations=STANDARD))
    await linked(pipeline, "team-a/m-1")
    number = pipeline.record_of("team-a/m-1")["id"]
    done = await explain(pipeline, "team-a/m-1")
    assert done.code == 0, done.out + done.err
    first, *below = done.out.splitlines()
    assert first == f"team-a/m-1 is in the registry as record {number} (DEPLOYED), version 3, and up to date."
    text = "\n".join(below)
    assert f"create record {number} (DEPLOYED, version 3): no record says that this object deploys" in text
    assert f"write id {number} to the object (cost: pod-start)" in text
    assert f"{number} in {pipeline.registry.url}: DEPLOYED, model 1, version 3" in text
    assert "\x1b" not in done.out


async def test_a_deleted_object_and_the_one_that_has_its_name_now_are_told_apart(pipeline):
    pipeline.cluster.create(isvc("team-a/twice", model="1", annotations=STANDARD))
    await linked(pipeline, "team-a/twice")
    former = pipeline.object("team-a/twice")["metadata"]["uid"]
    pipeline.cluster.delete("InferenceService", "team-a", "twice")
    await pipeline.settled()
    ended = await told(pipeline, "team-a/twice")
    assert ended["verdict"].startswith("team-a/twice is gone; its record")
    assert ended["verdict"].endswith("is UNDEPLOYED, without a version, and up to date")
    assert (ended["code"], ended["sections"][0]["moments"][-1]["type"]) == (0, "deleted")
    pipeline.cluster.create(isvc("team-a/twice", annotations=STANDARD))
    await pipeline.settled()
    both = await told(pipeline, "team-a/twice")
    assert [each["state"] for each in both["sections"]] == ["lives", "is gone"]
    assert both["sections"][1]["uid"] == former
    assert (both["code"], both["cause"]) == (0, "not-indexed")


async def test_an_id_that_would_restart_pods_is_told_as_waiting(pipeline):
    pipeline.cluster.create(isvc("team-a/busy", model="1", annotations=KNATIVE))
    await recorded(pipeline, "team-a/busy")
    await pipeline.settled()
    found = await told(pipeline, "team-a/busy")
    assert (found["code"], found["cause"], found["agrees"]) == (1, "write-back-deferred", False)
    assert "that would now cost restart (serving pods would be replaced), and WRITE_BACK=safe" in found["verdict"]


async def test_a_dead_letter_says_why_it_is_not_in_the_registry(pipeline):
    pipeline.cluster.create(isvc("team-a/lost", model="99"))
    await pipeline.settled()
    found = await told(pipeline, "team-a/lost")
    assert found["verdict"].startswith(
        "team-a/lost is not in the registry, because registered model 99 does not exist in the registry (dead letter of"
    )
    assert (found["code"], found["cause"]) == (1, "dead-letter")
    [moment] = found["sections"][0]["moments"]
    assert (moment["result"], moment["decided"][0]["kind"]) == ("dead", "Reject")
    pipeline.registry.seed(registered_models=[{"id": "99", "name": "late"}])
    assert "though it could succeed now" in (await told(pipeline, "team-a/lost"))["verdict"]


async def test_a_registry_that_no_setting_allows_is_named(pipeline):
    elsewhere = {"annotations": STANDARD | {PREFIX + "url": "http://evil.example:8080"}}
    pipeline.cluster.create(isvc("team-a/away", model="1", **elsewhere))
    await pipeline.settled()
    found = await told(pipeline, "team-a/away")
    assert (found["code"], found["cause"]) == (1, "registry-not-allowed")
    assert "names a server that is not allowed, evil.example:8080" in found["verdict"]


async def test_what_no_consumer_has_handled_is_pending_until_one_does(pipeline):
    await pipeline.consumer.stop()
    pipeline.cluster.create(isvc("team-a/early", model="1", annotations=STANDARD))
    await eventually(lambda: pipeline.events_of_subject("team-a/early"), "it is published")
    found = await eventually(lambda: _not_handled(pipeline, "team-a/early"))
    assert "waits to be handled, and no consumer asks for the messages of shard" in found["verdict"]
    assert found["code"] == 1
    pipeline.cluster.delete("InferenceService", "team-a", "early")
    await pipeline.consumer.start()
    await pipeline.settled()
    assert (await told(pipeline, "team-a/early"))["code"] == 0


async def _not_handled(pipeline: Pipeline, name: str) -> dict[str, Any] | None:
    """Return what is told when the last pull of a consumer that has ended is over."""
    found = await told(pipeline, name)
    return found if found["cause"] == "not-handled" and "no consumer" in found["verdict"] else None


async def test_what_the_producer_does_not_publish_is_told_with_its_reason(pipeline):
    await pipeline.producer.stop()
    pipeline.cluster.create(isvc("team-b/late", model="1", annotations=STANDARD))
    found = await told(pipeline, "team-b/late")
    assert (found["code"], found["cause"]) == (1, "not-published")
    narrow = pipeline.another("producer", "narrow", {"NAMESPACES": "team-a"})
    await narrow.start()
    try:
        found = await eventually(lambda: _not_selected(pipeline, "team-b/late"), "the marker says what is compared")
        assert "the producer does not select namespace team-b: it compares team-a" in found["verdict"]
    finally:
        await narrow.stop()
        await pipeline.producer.start()
    await pipeline.settled()
    assert (await told(pipeline, "team-b/late"))["code"] == 0


async def _not_selected(pipeline: Pipeline, name: str) -> dict[str, Any] | None:
    found = await told(pipeline, name)
    return found if found["cause"] == "namespace-not-selected" else None


async def test_a_registry_that_cannot_be_read_leaves_the_verdict_open(pipeline):
    pipeline.cluster.create(isvc("team-a/dark", model="1", annotations=STANDARD))
    await linked(pipeline, "team-a/dark")
    pipeline.registry.switch(database="stopped")
    try:
        found = await told(pipeline, "team-a/dark")
    finally:
        pipeline.registry.switch(database="well")
    assert (found["code"], found["cause"]) == (3, "registry-not-read")
    assert found["verdict"].startswith("whether team-a/dark is in the registry is not known, because registry")


async def test_a_broker_that_does_not_answer_is_exit_code_3(pipeline):
    done = await explain(pipeline, "team-a/m-1", NATS_URL="nats://127.0.0.1:9")
    assert (done.code, done.out) == (3, "")
    assert "NATS at nats://127.0.0.1:9 did not let us in" in done.err


async def test_what_nobody_knows_is_told(pipeline):
    found = await told(pipeline, "team-a/nobody")
    assert (found["code"], found["cause"], found["sections"]) == (1, "unknown", ())


async def test_an_llminferenceservice_is_found_without_its_kind(pipeline):
    llm = isvc("team-a/talker", model="1") | {"kind": "LLMInferenceService", "spec": {"model": {"uri": "hf://a/b"}}}
    pipeline.cluster.create(llm)
    await pipeline.settled()
    found = await told(pipeline, "team-a/talker")
    assert (found["code"], found["key"]["kind"]) == (0, "llmisvc")
    found = await told(pipeline, "team-a/talker", Kind.ISVC)
    assert (found["code"], found["cause"]) == (1, "unknown")


async def test_on_a_terminal_of_80_columns_nothing_is_wider_and_the_verdict_has_a_colour(pipeline):
    pipeline.cluster.create(isvc("team-a/shown", model="1", version="3", annotations=STANDARD))
    await linked(pipeline, "team-a/shown")
    shown = await on_terminal(pipeline, 80, "team-a/shown")
    assert shown.startswith("\x1b[1;32m")
    plain = "".join(part.partition("m")[2] if position else part for position, part in enumerate(shown.split("\x1b[")))
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= 80


async def on_terminal(pipeline: Pipeline, columns: int, name: str) -> str:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "explain", name),
        env=BARE | pipeline.world.environ | {"TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while True:
            try:
                part = await asyncio.to_thread(os.read, master, 4096)
            except OSError:  # the other end is closed
                break
            shown += part
        await asyncio.wait_for(process.wait(), 60)
    finally:
        os.close(master)
    return shown.decode()
