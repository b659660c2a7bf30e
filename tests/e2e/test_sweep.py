"""What no event heals: edits by hand, a reset registry, deletes that nobody saw; and what the sweep leaves alone."""

import json
import os
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import sandbox.registry
from shared.broker import Broker, BrokerSettings
from shared.holds import Hold, HoldClient, Patience
from tests.e2e.pipeline import ID, PREFIX, STANDARD, STREAMS, SUBJECTS, Pipeline, isvc
from tests.e2e.sweeps import (
    SENTINELS,
    deleted,
    deployed,
    edit,
    looks,
    states,
    sweeping,
    sweeps,
    swept,
    undeployed,
)
from tests.eventually import eventually


@pytest.fixture
async def pipeline(tmp_path, guard):
    async with sweeping(tmp_path, guard) as running:
        yield running


# --- what is healed ---------------------------------------------------------------------------------------------------


async def test_a_state_that_was_edited_by_hand_is_set_right(pipeline):
    await deployed(pipeline, 2)
    await edit(pipeline, pipeline.records()[:1], desiredState="UNDEPLOYED")
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 2}, "DEPLOYED again")
    assert await looks(pipeline) > 0


async def test_the_records_of_a_registry_that_was_reset_come_back(pipeline):
    names = await deployed(pipeline, 8)
    pipeline.registry.registry.replace(0, {"registered_models": [{"id": "1", "name": "model-1"}]})
    assert pipeline.records() == []
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 8}, "all records again")
    await eventually(
        lambda: {pipeline.id_label(name) for name in names} == {record["id"] for record in pipeline.records()},
        "each object carries the id of its new record",
    )


async def test_an_undeployed_that_was_lost_is_said_again(pipeline):
    names = await deployed(pipeline, 3)
    deleted(pipeline, names[0])
    await eventually(lambda: undeployed(pipeline))
    await edit(pipeline, undeployed(pipeline))  # a PATCH that says nothing of the state deploys
    await sweeps(pipeline)
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 2, "UNDEPLOYED": 1}, "UNDEPLOYED again")
    assert await looks(pipeline) > 0


async def test_a_dead_letter_is_healed_when_its_model_appears(pipeline):
    pipeline.cluster.create(isvc("team-a/early", model="99"))
    await eventually(pipeline.dead_letters)
    before = await looks(pipeline)  # a sweep may have been faster than the burial
    await sweeps(pipeline)
    assert await looks(pipeline) == before, "nothing has changed"
    pipeline.registry.seed(registered_models=[{"id": "99", "name": "late"}])
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 1}, "its record")

    async def cleared() -> bool:
        return await pipeline.dead_letters() == {}

    await eventually(cleared, "the dead letter is gone")


async def test_a_record_in_a_former_registry_is_closed_though_nobody_remembers_it(tmp_path, guard):
    async with sandbox.registry.serve() as other:
        other.seed(registered_models=[{"id": "1", "name": "there"}])
        allowed = other.url.removeprefix("http://")
        async with sweeping(tmp_path, guard, REGISTRY_ALLOWED_HOSTS=allowed) as pipeline:
            [name] = await deployed(pipeline, 1)
            await pipeline.consumer.stop()
            pipeline.patch(name, {"metadata": {"annotations": {PREFIX + "url": other.url}}})
            await pipeline.consumer.start()
            await eventually(lambda: states(pipeline) == {"UNDEPLOYED": 1}, "closed here")
            assert [each["desiredState"] for each in other.records("inference_services")] == ["DEPLOYED"]
            assert await looks(pipeline) > 0


async def test_a_write_back_that_waited_is_done_when_it_costs_nothing_any_more_though_nobody_remembers_it(pipeline):
    """KServe's configuration is read again at each sweep: now it keeps our key from the pods."""
    knative = {"annotations": {"serving.kserve.io/deploymentMode": "Knative"}}
    pipeline.cluster.create(isvc("team-a/serving", model="1", **knative))
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 1})
    await sweeps(pipeline)
    assert pipeline.id_label("team-a/serving") is None, "it would restart its pods"
    lists = json.dumps({"serviceLabelDisallowedList": [ID], "serviceAnnotationDisallowedList": []})
    pipeline.cluster.patch("ConfigMap", ("kserve", "inferenceservice-config"), {"data": {"inferenceService": lists}})
    await eventually(lambda: pipeline.id_label("team-a/serving"), "it carries the id")


# --- the broker's storage is lost -------------------------------------------------------------------------------------


async def lose_storage(pipeline: Pipeline, directory: Path) -> None:
    await pipeline.broker.kill()
    shutil.rmtree(directory / "nats" / "store")
    await pipeline.broker.start()


async def test_after_a_lost_broker_nothing_is_undeployed_before_the_marker_and_then_what_is_gone(pipeline, tmp_path):
    names = await deployed(pipeline, 40)
    await pipeline.producer.kill()
    await pipeline.consumer.kill()
    await lose_storage(pipeline, tmp_path)
    deleted(pipeline, *names[:3])
    await pipeline.consumer.start()  # makes the streams: they are empty
    found = await sweeps(pipeline)
    assert [found[what] for what in ("objects", "waiting", "looks", "held")] == [0, 40, 0, 0]
    assert states(pipeline) == {"DEPLOYED": 40}
    await pipeline.producer.start()
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 37, "UNDEPLOYED": 3}, "the three that are gone", 30)
    found = await sweeps(pipeline)
    assert [found[what] for what in ("objects", "waiting", "looks")] == [37 + SENTINELS, 0, 0]


async def test_a_wiped_broker_under_200_deployed_objects_costs_no_record(pipeline, tmp_path):
    await deployed(pipeline, 200)
    assert (await sweeps(pipeline))["objects"] == 200 + SENTINELS
    created = (await pipeline.client.jetstream().stream_info(STREAMS.events)).created
    await lose_storage(pipeline, tmp_path)
    rounds = len(swept(pipeline))
    await eventually(
        lambda: [each for each in swept(pipeline)[rounds:] if each["objects"] == 200 + SENTINELS], "whole again", 40
    )
    assert (await pipeline.client.jetstream().stream_info(STREAMS.events)).created != created
    await sweeps(pipeline)
    assert states(pipeline) == {"DEPLOYED": 200}


# --- the hold ---------------------------------------------------------------------------------------------------------


async def test_too_many_undeployments_are_held_until_isvc_sync_release_says_that_they_are_true(pipeline):
    names = await deployed(pipeline, 30)
    deleted(pipeline, *names[:7])
    await eventually(lambda: len(undeployed(pipeline)) == 7)
    await pipeline.consumer.stop()  # so that the sweep sees all seven at once
    await edit(pipeline, undeployed(pipeline))
    await edit(pipeline, [pipeline.record_of(names[-1])], desiredState="UNDEPLOYED")
    await pipeline.consumer.start()
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 30}, "what is no undeployment is not held")
    found = await sweeps(pipeline)
    assert (found["held"], states(pipeline)) == (7, {"DEPLOYED": 30})
    assert await pipeline.consumer.metric("isvc_sync_objects", state="held") == 7
    assert await pipeline.consumer.metric("isvc_sync_drift_objects") == 7
    hold = await held_by_the_sweep(pipeline)
    assert (hold.count, hold.known, hold.sample[0]) == (7, 30, names[0])
    released = await create_subprocess_exec(
        *(sys.executable, "-m", "cli", "release", hold.id, "--yes"),
        env={**os.environ, **pipeline.world.environ},
        stdin=DEVNULL,
        stdout=PIPE,
    )
    said, _ = await released.communicate()
    assert (released.returncode, b"released" in said) == (0, True)
    await eventually(lambda: states(pipeline) == {"DEPLOYED": 23, "UNDEPLOYED": 7}, "what was released")


async def held_by_the_sweep(pipeline: Pipeline) -> Hold:
    settings = BrokerSettings(nats_url=(pipeline.broker.url,))
    async with Broker(settings, on_closed=lambda: None) as broker:
        answers = await HoldClient(broker, SUBJECTS, Patience(within_s=1.0, quiet_s=0.1)).ask()
    [hold] = [hold for answer in answers for hold in answer.holds if hold.by == "sweep"]
    return hold


# --- what is left alone -----------------------------------------------------------------------------------------------


async def test_without_a_difference_there_is_no_look_no_write_and_one_read_a_sweep(pipeline):
    await deployed(pipeline, 20)
    assert (await sweeps(pipeline))["records"] == 20
    rounds, reads = len(swept(pipeline)), pipeline.reads()
    before = (pipeline.writes(), pipeline.patches(), await looks(pipeline), await pipeline.last_sequence())
    await sweeps(pipeline, 3)
    assert pipeline.reads() - reads <= len(swept(pipeline)) - rounds + 1
    assert (pipeline.writes(), pipeline.patches(), await looks(pipeline), await pipeline.last_sequence()) == before


async def test_two_clusters_of_one_name_on_one_registry_never_touch_each_others_records(tmp_path, guard):
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(sweeping(tmp_path / "a", guard))
        second = await stack.enter_async_context(sweeping(tmp_path / "b", guard, REGISTRY_URL=first.registry.url))
        names = await deployed(first, 8)
        for name in names:
            second.cluster.create(isvc(name, model="1", annotations=STANDARD))
        await eventually(lambda: len(first.records()) == 16, "a record for each object of each cluster", 30)
        await second.settled()
        assert len({stamp(record)["clusterId"] for record in first.records()}) == 2
        written = {record["id"]: record["lastUpdateTimeSinceEpoch"] for record in first.records()}
        asked = await looks(first) + await looks(second)
        for each in (first, second):
            assert (await sweeps(each))["records"] == 8
        assert {record["id"]: record["lastUpdateTimeSinceEpoch"] for record in first.records()} == written
        assert await looks(first) + await looks(second) == asked
        deleted(first, *names)
        await eventually(lambda: states(first) == {"DEPLOYED": 8, "UNDEPLOYED": 8}, "its own, and only those")
        for each in (first, second):
            await sweeps(each)
        assert states(first) == {"DEPLOYED": 8, "UNDEPLOYED": 8}


def stamp(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record["customProperties"]["isvc-sync"]["string_value"])
    return found


async def test_another_consumer_sweeps_when_the_one_that_did_is_gone(pipeline):
    await deployed(pipeline, 1)
    await sweeps(pipeline, 1)
    other = pipeline.another("consumer", "consumer-1", {"POD_NAME": "consumer-1", "SHARD_LEASE_S": "3"})
    await other.start()
    try:
        await pipeline.consumer.stop()
        await eventually(lambda: [e for e in other.entries() if e["message"] == "swept"], "the other one sweeps", 30)
        await edit(pipeline, pipeline.records(), desiredState="UNDEPLOYED")
        await eventually(lambda: states(pipeline) == {"DEPLOYED": 1}, "DEPLOYED again")
    finally:
        await other.close()
