"""`isvc-sync replay --to http://`: the consumer writes to a registry that others use, and touches nothing of theirs."""

import json

import pytest

import sandbox.registry
from replay.capture import Facts
from tests.integration.replay.commands import replay
from tests.unit.replay.replayed import CLUSTER_ID, START, end, story, write

MODELS = {
    "registered_models": [{"id": "1", "name": "iris"}],
    "model_versions": [{"id": version, "name": version, "registeredModelId": "1"} for version in ("2", "3")],
}


def production(name: str = "iris") -> dict[str, object]:
    """Return the record that production has of the object in the capture."""
    fact = end().records[0]
    return {
        "id": "71",
        "name": fact.name,
        "externalId": fact.external_id,
        "servingEnvironmentId": "9",
        "registeredModelId": "1",
        "modelVersionId": "2",
        "desiredState": "DEPLOYED",
        "customProperties": fact.properties,
    }


@pytest.fixture
async def registry():
    async with sandbox.registry.serve() as server:
        server.seed(
            **MODELS,
            serving_environments=[{"id": "9", "name": "team-a"}],
            inference_services=[production()],
        )
        yield server


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl", [START, Facts(records=end().records[:1]), *story(), end()])


async def test_the_records_of_a_replay_are_its_own(registry, capture):
    before = registry.records("inference_services")
    done = await replay(capture, "--to", registry.url, "--name", "tuesday", "-o", "json")
    assert done.code == 0, done.err
    after = registry.records("inference_services")
    assert [each for each in after if each["id"] == "71"] == before
    made = [each for each in after if each["id"] != "71"]
    stamps = [json.loads(each["customProperties"]["isvc-sync"]["string_value"]) for each in made]
    assert {(stamp["cluster"], stamp["clusterId"]) for stamp in stamps} == {("isvc-replay-tuesday",) * 2}
    assert all("u-1" not in each["externalId"] and CLUSTER_ID not in str(each) for each in made)
    environments = {each["id"]: each["name"] for each in registry.records("serving_environments")}
    assert {environments[each["servingEnvironmentId"]] for each in made} == {"isvc-replay-tuesday-team-a"}


async def test_what_the_registry_holds_is_shown_and_not_compared(registry, capture):
    done = await replay(capture, "--to", registry.url, "--name", "tuesday", "-o", "json")
    document = json.loads(done.out)
    assert document["compared"] is False
    assert {each["name"]: each["record"]["state"] for each in document["objects"]} == {
        "iris": "UNDEPLOYED",
        "other": "DEPLOYED",
    }


async def test_nothing_is_seeded_into_a_registry_of_others(capture):
    async with sandbox.registry.serve() as empty:
        done = await replay(capture, "--to", empty.url, "-o", "json")
        assert done.code == 0, done.err
        assert (empty.records("registered_models"), empty.records("inference_services")) == ([], [])
    assert set(json.loads(done.out)["deadLetters"]) == {"isvc/team-a/other"}, "the letter of the one that is gone ended"


async def test_a_registry_that_does_not_answer_exits_3(capture):
    done = await replay(capture, "--to", "http://127.0.0.1:9", "--wait-s", 600)  # which is not waited for
    assert done.code == 3
    assert done.err == (
        "isvc-sync replay: GET /api/model_registry/v1/registered_models: no answer (All connection attempts failed).\n"
    )


async def test_the_token_goes_to_that_registry(registry, capture, tmp_path):
    registry.switch(require_token="s3cr3t")
    token = tmp_path / "token"
    token.write_text("s3cr3t")
    done = await replay(capture, "--to", registry.url, "-o", "json", environ={"REGISTRY_TOKEN_FILE": str(token)})
    assert done.code == 0, done.err
    assert "s3cr3t" not in done.out + done.err
