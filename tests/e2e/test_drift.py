"""`isvc-sync drift` as a process, against a world that differs."""

import json
import re

import pytest

from sandbox.world import NAME
from tests.e2e.commands import command, typed
from tests.e2e.pipeline import STREAMS, Pipeline
from tests.e2e.sweeps import deployed, edit, looks, states
from tests.eventually import eventually

REGISTRY_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"namespace": "kubeflow", "name": "model-registry", "labels": {"component": "model-registry"}},
    "spec": {"ports": [{"name": "http-api", "port": 8080}]},
}


@pytest.fixture
async def pipeline(tmp_path, guard):
    async with Pipeline(tmp_path, guard) as running:
        yield running


@pytest.fixture
async def drifted(pipeline):
    """Three objects: one record was edited by hand, one was lost from its registry, one is right."""
    names = await deployed(pipeline, 3)
    await edit(pipeline, [pipeline.record_of(names[0])], desiredState="UNDEPLOYED")
    return names


async def test_agreement_is_exit_code_0_in_one_sentence(pipeline):
    await deployed(pipeline, 2)
    done = await command(pipeline, "drift")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("2 records in 1 registry, 4 objects in the stream, no difference.\n")


async def test_drift_is_exit_code_1_and_names_the_object_and_what_would_be_done(pipeline, drifted):
    done = await command(pipeline, "drift")
    assert (done.code, done.err) == (1, "")
    [row] = [line for line in done.out.splitlines() if drifted[0] in line]
    assert row.split(maxsplit=1) == [
        f"isvc/{drifted[0]}",
        "wrong state    change the record: the record says otherwise in desiredState, isvc-sync",
    ]
    assert await looks(pipeline) == 0, "showing asks for nothing"


async def test_programs_get_each_difference(pipeline, drifted):
    done = await command(pipeline, "drift", "-o", "json")
    found = json.loads(done.out)
    [difference] = found["differences"]
    assert (done.code, f"{difference['namespace']}/{difference['name']}") == (1, drifted[0])
    assert (difference["reason"], difference["undeploys"], difference["kept"]) == ("wrong state", False, None)
    assert found["registries"] == [{"name": pipeline.registry.url, "records": 3, "ours": 3, "error": ""}]


async def test_fix_shows_the_plan_asks_and_repairs(pipeline, drifted):
    done = await typed(pipeline, "y", "drift", "--fix")
    plan, _, after = done.out.partition("Repair 1 (1 x wrong state)? [y/N]:")
    assert (done.code, drifted[0] in plan, "no difference" in after) == (0, True, True)
    assert states(pipeline) == {"DEPLOYED": 3}
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in plan.splitlines()) <= 80


async def test_without_a_yes_nothing_is_repaired(pipeline, drifted):
    done = await typed(pipeline, "n", "drift", "--fix")
    assert (done.code, "nothing was repaired" in done.out) == (1, True)
    assert await looks(pipeline) == 0


async def test_where_nobody_can_be_asked_fix_needs_yes(pipeline, drifted):
    refused = await command(pipeline, "drift", "--fix")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert states(pipeline)["UNDEPLOYED"] == 1
    done = await command(pipeline, "drift", "--fix", "--yes")
    assert (done.code, states(pipeline)) == (0, {"DEPLOYED": 3})


async def test_what_the_sweep_would_hold_is_shown_and_not_repaired(pipeline):
    names = await deployed(pipeline, 8)
    for name in names[:6]:
        pipeline.cluster.delete("InferenceService", *name.split("/"))
    await eventually(lambda: states(pipeline)["UNDEPLOYED"] == 6)
    await edit(pipeline, [each for each in pipeline.records() if each["desiredState"] == "UNDEPLOYED"])
    done = await command(pipeline, "drift", "--fix", "--yes")
    assert (done.code, "isvc-sync release" in done.out, done.out.count("HELD: ")) == (1, True, 7)
    assert states(pipeline) == {"DEPLOYED": 8}


async def test_a_registry_that_cannot_be_read_is_exit_code_3(pipeline):
    await deployed(pipeline, 1)
    pipeline.registry.switch(database="stopped")
    done = await command(pipeline, "drift")
    assert (done.code, "Not read: " in done.out) == (3, True)
    assert ("nothing could be compared" in done.out, "no difference" in done.out) == (True, False)


async def test_records_that_call_this_cluster_otherwise_are_told(pipeline):
    await deployed(pipeline, 2)
    done = await command(pipeline, "drift", CLUSTER_NAME="typo")
    assert (done.code, done.out.count("unknown, but deployed")) == (1, 2)
    assert f"records of this cluster's id say '{NAME}', CLUSTER_NAME is 'typo'." in done.out


async def test_a_repair_that_no_consumer_makes_is_said_to_wait_for_one(pipeline, drifted):
    await pipeline.consumer.stop()
    done = await command(pipeline, "drift", "--fix", "--yes", "--wait-s", "0")
    assert (done.code, "1 was not repaired in time: do consumers run?" in done.err) == (1, True)
    assert await looks(pipeline) == 1, "it is done when one comes"


async def test_records_of_namespaces_that_the_producer_leaves_out_are_no_drift(pipeline):
    """Its objects are gone from the stream, as they are when NAMESPACES was set on a new broker."""
    [name] = await deployed(pipeline, 1, "left-out")
    await pipeline.producer.stop()
    await pipeline.client.jetstream().purge_stream(STREAMS.events, subject=f"isvc.{NAME}.evt.*.*.left-out.>")
    watching = pipeline.another("producer", "watching", {"NAMESPACES": "team-a"})
    await watching.start()
    try:
        await eventually(lambda: marker_scope(pipeline, ["team-a"]))
    finally:
        await watching.close()
    done = await command(pipeline, "drift")
    assert (done.code, "UNCONFIRMED" in done.out, name in done.out) == (0, False, False)
    assert "1 object deployed in namespaces that the producer leaves out, by NAMESPACES (left-out)" in done.out


async def marker_scope(pipeline: Pipeline, scope: list[str]) -> bool:
    message = await pipeline.client.jetstream().get_last_msg(STREAMS.events, f"isvc.{NAME}.sync.isvc")
    return json.loads(message.data)["scope"] == scope


async def test_a_registry_that_a_service_names_is_told_with_its_address(pipeline):
    pipeline.cluster.create(REGISTRY_SERVICE)
    found = {"REGISTRY_URL": "", "REGISTRY_NAMESPACES": "kubeflow", "CLUSTER_DOMAIN": "invalid"}
    done = await command(pipeline, "drift", **found)
    [said] = [line for line in done.out.splitlines() if line.startswith("Not read: ")]
    assert (done.code, said.startswith("Not read: kubeflow/model-registry: http://model-registry.kubeflow.svc")) == (
        3,
        True,
    )
