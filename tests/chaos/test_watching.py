"""What a chaos run writes down is what happens."""

import json

import pytest
from msgspec.structs import replace

from sandbox.registry import Options, RegistryServer
from sandbox.registry.kinds import INFERENCE_SERVICE
from tests.chaos.watching import Writes, effects

NEW = {"epoch": 1, "resourceVersion": "20", "modelVersion": "102"}


def properties(**changes):
    return {"isvc-sync": {"metadataType": "MetadataStringValue", "string_value": json.dumps(NEW | changes)}}


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        pytest.param({"resourceVersion": "21", "modelVersion": "103"}, set(), id="newer"),
        pytest.param({"resourceVersion": "9", "modelVersion": "101"}, {"older"}, id="older"),
        pytest.param({"epoch": 0, "resourceVersion": "99", "modelVersion": "101"}, {"older"}, id="older-epoch"),
        pytest.param({"resourceVersion": "3", "deleted": True}, set(), id="deleted"),
        pytest.param({"resourceVersion": "21"}, {"idle"}, id="the-same-again"),
    ],
)
def test_a_write_is_held_against_what_it_replaces(changes, counted):
    server = RegistryServer(Options())
    server.seed(serving_environments=[{"id": "1", "name": "team-a"}], registered_models=[{"id": "2", "name": "m"}])
    writes = Writes(server)
    server.seed(
        inference_services=[
            {
                "id": "3",
                "name": "iris/u",
                "registeredModelId": "2",
                "servingEnvironmentId": "1",
                "customProperties": properties(),
            }
        ]
    )
    store = server.registry.store
    before = store.get(INFERENCE_SERVICE, 3)
    assert before is not None
    store.update(replace(before, properties=properties(**changes)))
    assert writes.seen["create"] == writes.seen["update"] == 1
    assert {name for name in ("older", "idle") if writes.seen[name]} == counted


def test_a_line_that_is_cut_off_and_a_notice_for_people_are_no_effects(tmp_path):
    path = tmp_path / "effects.jsonl"
    line = {
        "asked_at": 1.0,
        "sent_at": 1.0,
        "pod": "pod-0",
        "shard": 3,
        "what": "PATCH /api/model_registry/v1/inference_services/1",
    }
    notice = line | {"what": "POST /api/v1/namespaces/a/events", "shard": None}
    path.write_text(f"{json.dumps(line)}\n{json.dumps(notice)}\n{json.dumps(line)[:20]}")
    assert [each.what for each in effects(path)] == [line["what"]]
