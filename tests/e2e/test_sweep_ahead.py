"""Records that are stamped newer than the stream will ever be: no event reaches them, until the sweep has seen it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipeline import STOP, Pipeline
from tests.e2e.sweeps import deleted, deployed, edit, states, sweeping, sweeps, undeployed
from tests.eventually import eventually


@pytest.fixture
async def pipeline(tmp_path, guard):
    async with sweeping(tmp_path, guard) as running:
        running.seed({"101": "1", "102": "1"})
        yield running


def stamp(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record["customProperties"]["isvc-sync"]["string_value"])
    return found


async def stamp_by_hand(pipeline: Pipeline, record: dict[str, Any], **changes: Any) -> None:
    text = json.dumps(stamp(record) | changes)
    own = {"isvc-sync": {"metadataType": "MetadataStringValue", "string_value": text}}
    properties = record["customProperties"] | own
    await edit(pipeline, [record], customProperties=properties, desiredState=record["desiredState"])


async def lose_storage(pipeline: Pipeline, directory: Path) -> None:
    await pipeline.broker.kill()
    shutil.rmtree(directory / "nats" / "store")
    await pipeline.broker.start()


async def change_version_stop_and_delete(pipeline: Pipeline, names: list[str]) -> None:
    """Do to three objects what the registry is to tell, and wait until it does."""
    pipeline.set_labels(names[0], model_version_id="102")
    pipeline.patch(names[1], {"metadata": {"annotations": {STOP: "true"}}})
    uid = pipeline.object(names[2])["metadata"]["uid"]
    deleted(pipeline, names[2])
    await eventually(lambda: pipeline.record_of(names[0]).get("modelVersionId") == "102", "the version", 30)
    await eventually(lambda: pipeline.record_of(names[1])["desiredState"] == "UNDEPLOYED", "the stop", 30)
    await eventually(lambda: [each["desiredState"] for each in pipeline.records(uid)] == ["UNDEPLOYED"], "the end", 30)


async def test_after_a_producer_whose_clock_was_fast_and_a_lost_broker_all_that_happens_is_recorded(pipeline, tmp_path):
    await pipeline.producer.kill()
    await lose_storage(pipeline, tmp_path)
    fast = pipeline.another("tests.e2e.fast_clock", "fast-producer", {"POD_NAME": "producer-0"})
    await fast.start()
    try:
        names = await deployed(pipeline, 4)
        from_fast = {stamp(record)["epoch"] for record in pipeline.records()}
    finally:
        await fast.close()
    await lose_storage(pipeline, tmp_path)
    await pipeline.producer.start()
    await change_version_stop_and_delete(pipeline, names)
    await sweeps(pipeline)
    assert max(stamp(record)["epoch"] for record in pipeline.records()) < min(from_fast)
    assert states(pipeline) == {"DEPLOYED": 2, "UNDEPLOYED": 2}


@pytest.mark.parametrize("changes", [{"epoch": 4_000_000_000}, {"deleted": True}], ids=["epoch", "end"])
async def test_a_stamp_that_a_person_has_put_ahead_holds_up_nothing_after_the_next_sweep(pipeline, changes):
    names = await deployed(pipeline, 3)
    for record in pipeline.records():
        await stamp_by_hand(pipeline, record, **changes)
    await change_version_stop_and_delete(pipeline, names)
    await sweeps(pipeline)
    assert all(stamp(record)["epoch"] < 4_000_000_000 for record in pipeline.records())
    assert [stamp(record)["deleted"] for record in pipeline.records() if record not in undeployed(pipeline)] == [False]
