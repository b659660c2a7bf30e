"""`isvc-sync leave` as a process: whose ids it takes off, and when it does not."""

import json
import re
from pathlib import Path

import pytest

from sandbox.broker import NatsServer
from sandbox.faults import Fault
from sandbox.world import NAME
from shared.broker import Broker, BrokerSettings
from shared.events import SyncMarker, encode_marker
from shared.objects import Kind
from shared.streams import ensure_streams
from tests.e2e.commands import command, typed
from tests.e2e.pipeline import ID, STANDARD, STOP, Pipeline, isvc
from tests.e2e.sweeps import deployed
from tests.eventually import eventually

SERVING = {
    "url": "http://iris.example",
    "deploymentMode": "Standard",
    "conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "PredictorReady", "status": "True", "reason": "NewReplicaSetAvailable"},
    ],
    "modelStatus": {"states": {"activeModelState": "Loaded"}, "copies": {"totalCopies": 2}},
}
STOPPED = {"deploymentMode": "Standard", "conditions": [{"type": "Stopped", "status": "True"}]}
CHANGES = ("labels", "resourceVersion", "managedFields")


@pytest.fixture
async def pipeline(tmp_path, guard):
    async with Pipeline(tmp_path, guard) as running:
        yield running


async def labelled(pipeline: Pipeline, *states: dict) -> list[str]:
    """Return objects that carry their record's id, each with such a status."""
    names = await deployed(pipeline, len(states))
    for name, status in zip(names, states, strict=True):
        if status is STOPPED:
            pipeline.patch(name, {"metadata": {"annotations": {STOP: "true"}}})
        pipeline.cluster.patch("InferenceService", tuple(name.split("/")), {"status": status}, part="status")
    await pipeline.settled()
    return names


def untouched(obj: dict) -> dict:
    """Return what leaving must not change."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in CHANGES}
    labels = {key: value for key, value in obj["metadata"]["labels"].items() if key != ID}
    return obj | {"metadata": metadata | {"labels": labels}}


async def test_free_ids_go_others_stay_until_pods_may_restart_and_nothing_else_is_touched(pipeline):
    idle, serving = await labelled(pipeline, STOPPED, SERVING)
    pipeline.cluster.create(isvc("team-a/stranger", annotations=STANDARD, labels={ID: "999"}))
    names = (idle, serving, "team-a/stranger")
    before = [untouched(pipeline.object(name)) for name in names]
    records = pipeline.records()
    await pipeline.consumer.stop()

    done = await command(pipeline, "leave", "--yes")
    assert (done.code, pipeline.id_label(idle)) == (1, None)
    assert pipeline.id_label(serving) is not None
    [row] = [line for line in done.out.splitlines() if serving in line]
    assert row.endswith("its serving pods (2 of the predictor)")
    assert "1 id stays, as a removal restarts pods" in done.out

    done = await command(pipeline, "leave", "--yes", "--restart-pods")
    assert (done.code, pipeline.id_label(serving), pipeline.id_label("team-a/stranger")) == (0, None, "999")
    assert "1 id no record of ours vouches for: left alone." in done.out
    assert [untouched(pipeline.object(name)) for name in names] == before
    assert pipeline.records() == records


async def test_while_consumers_run_that_would_write_it_again_it_refuses(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    done = await command(pipeline, "leave", "--yes")
    assert (done.code, pipeline.id_label(name) is not None) == (2, True)
    assert "consumers run (consumer-0)" in done.err
    assert "WRITE_BACK=off" in done.err
    shown = await command(pipeline, "leave", "--dry-run", "-o", "json")
    found = json.loads(shown.out)
    assert (shown.code, found["consumers"], [each["fate"] for each in found["ids"]]) == (1, ["consumer-0"], ["remove"])


async def test_a_consumer_that_writes_ids_in_spite_of_what_was_said_is_found_out(pipeline):
    """The object is idle: the consumer, whose setting is another one, may write it at once."""
    [name] = await labelled(pipeline, STOPPED)
    done = await command(pipeline, "leave", "--yes", WRITE_BACK="off")
    assert (done.code, "a consumer runs without WRITE_BACK=off" in done.err) == (1, True)
    await eventually(lambda: pipeline.id_label(name) is not None)


@pytest.mark.parametrize("wrong", ["CLUSTER_NAME", "SUBJECT_PREFIX"])
async def test_under_a_name_that_the_broker_does_not_know_it_refuses_as_consumers_may_run(pipeline, wrong):
    names = await labelled(pipeline, STOPPED, SERVING)
    before, patches = [pipeline.id_label(name) for name in names], pipeline.patches()
    for arguments in (["--yes"], ["--yes", "--restart-pods"], ["--dry-run"]):
        done = await command(pipeline, "leave", *arguments, **{wrong: "typo"})
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert "whether consumers run cannot be seen" in done.err
        assert "give CLUSTER_NAME, SUBJECT_PREFIX and NATS_URL as the consumers have them" in done.err
        assert "--consumers-stopped" in done.err
    assert ([pipeline.id_label(name) for name in names], pipeline.patches()) == (before, patches)


@pytest.mark.parametrize("has_streams", [False, True])
async def test_another_broker_does_not_know_that_no_consumer_runs(pipeline, tmp_path, has_streams):
    [name] = await labelled(pipeline, STOPPED)
    async with NatsServer(tmp_path / "other") as other:
        if has_streams:
            settings = BrokerSettings(nats_url=(other.url,), stream_max_bytes=2**26)
            async with Broker(settings, on_closed=lambda: None) as broker:
                await ensure_streams(broker.jetstream, settings)
        done = await command(pipeline, "leave", "--yes", NATS_URL=other.url)
    assert (done.code, "--consumers-stopped" in done.err, pipeline.id_label(name) is not None) == (2, True, True)


async def test_under_another_clusters_name_it_refuses(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    headers, body = encode_marker(SyncMarker((), "7", 1), kind=Kind.ISVC, cluster_id="c-2", time="2026-11-30T11:00:00Z")
    await pipeline.client.jetstream().publish("isvc.other.sync.isvc", body, headers=headers)
    done = await command(pipeline, "leave", "--yes", CLUSTER_NAME="other")
    assert (done.code, "in use on this broker by cluster id c-2" in done.err) == (2, True)
    assert pipeline.id_label(name) is not None


async def test_a_consumer_that_the_broker_did_not_tell_of_is_found_out(pipeline):
    """A person has said that none runs, so nobody was asked; it is the same where an old broker was asked."""
    [name] = await labelled(pipeline, STOPPED)
    done = await command(pipeline, "leave", "--yes", "--consumers-stopped")
    assert (done.code, "an id that was removed stands there again" in done.err) == (1, True)
    assert "on another broker or under another CLUSTER_NAME" in done.err
    await eventually(lambda: pipeline.id_label(name) is not None)


async def test_an_id_whose_removal_was_refused_is_not_said_to_stand_there_again(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    await pipeline.consumer.stop()
    message = 'admission webhook "policy" denied the request: hands off'
    body = json.dumps({"kind": "Status", "code": 403, "message": message})
    answer = {"error_rate": 1.0, "error_status": 403, "error_headers": {"Content-Type": "application/json"}}
    pipeline.cluster.faults.set(Fault(method="PATCH", path=".*/inferenceservices/.*", error_body=body, **answer))
    done = await command(pipeline, "leave", "--yes")
    assert (done.code, "hands off" in done.err, "stands there again" in done.err) == (1, True, False)
    assert pipeline.id_label(name) is not None


async def test_records_that_call_this_cluster_otherwise_are_told(pipeline):
    await labelled(pipeline, SERVING)
    given = ["leave", "--dry-run", "--consumers-stopped"]
    done = await command(pipeline, *given, CLUSTER_NAME="typo")
    assert f"records of this cluster's id say '{NAME}', CLUSTER_NAME is 'typo'." in done.out
    found = await command(pipeline, *given, "-o", "json", CLUSTER_NAME="typo")
    assert json.loads(found.out)["namedInRecords"] == [NAME]
    assert "CLUSTER_NAME" not in (await command(pipeline, *given)).out


async def test_it_shows_the_plan_asks_and_is_told_no(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    await pipeline.consumer.stop()
    done = await typed(pipeline, "n", "leave")
    assert (done.code, "Remove 1 id? [y/N]:" in done.out, "nothing was removed" in done.out) == (1, True, True)
    refused = await command(pipeline, "leave")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert pipeline.id_label(name) is not None


async def test_where_the_broker_is_gone_already_a_person_must_say_that_no_consumer_runs(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    await pipeline.consumer.stop()
    nowhere = {"NATS_URL": "nats://127.0.0.1:1"}
    refused = await command(pipeline, "leave", "--yes", **nowhere)
    assert (refused.code, "--consumers-stopped" in refused.err) == (3, True)
    done = await command(pipeline, "leave", "--yes", "--consumers-stopped", **nowhere)
    assert (done.code, pipeline.id_label(name)) == (0, None)


async def test_while_the_registry_is_away_nobody_knows_whose_an_id_is(pipeline):
    [name] = await labelled(pipeline, STOPPED)
    await pipeline.consumer.stop()
    pipeline.registry.switch(database="stopped")
    done = await command(pipeline, "leave", "--yes")
    assert (done.code, "Not read: " in done.out, pipeline.id_label(name) is not None) == (3, True, True)


async def test_options_that_contradict_are_one_sentence(pipeline):
    done = await command(pipeline, "leave", "--dry-run", "--yes")
    assert (done.code, done.err) == (2, "isvc-sync leave: give --dry-run or --yes, not both.\n")


async def test_the_commands_of_the_page_do_what_it_says(pipeline):
    """In its order; with `--yes`, as nobody can be asked here."""
    page = (Path(__file__).parents[2] / "docs" / "adoption.md").read_text()
    shown = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    commands = [line.split()[1:] for line in shown if line.startswith("isvc-sync leave")]
    await labelled(pipeline, STOPPED, SERVING)
    await pipeline.consumer.stop()
    codes = [(await command(pipeline, *each, *([] if "--dry-run" in each else ["--yes"]))).code for each in commands]
    assert codes == [1, 1, 0]
