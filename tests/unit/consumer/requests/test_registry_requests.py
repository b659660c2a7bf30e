"""What the adapter sends, to the byte, and what it makes of odd but successful answers."""

import json

import httpx
import pytest

from consumer.actions import UpdateRecord
from consumer.registry import escape_like
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from tests.unit.consumer.requests.registry_script import EMPTY_PAGE, TEXT, URL, Script, creation, error, ok

RECORD = {
    "id": "17",
    "name": "iris/5a1e",
    "externalId": "kserve:5a1e/1",
    "servingEnvironmentId": "11",
    "registeredModelId": "1",
    "modelVersionId": "4",
    "runtime": "sklearn",
    "desiredState": "UNDEPLOYED",
    "customProperties": {"url": URL},
    "createTimeSinceEpoch": "1796038318326",
}


def body(request: httpx.Request):
    return json.loads(request.content)


async def test_create_sends_every_field_once_and_as_meant():
    script = Script(ok(RECORD, 201))
    await script.registry().create_record(creation(), "11")
    assert script.paths() == ["POST v1alpha3/inference_services"]
    assert body(script.seen[0]) == {
        "name": "iris/5a1e",
        "externalId": "kserve:5a1e/1",
        "servingEnvironmentId": "11",
        "registeredModelId": "1",
        "modelVersionId": "4",
        "runtime": "sklearn",
        "desiredState": "DEPLOYED",
        "customProperties": {"url": URL},
    }
    assert script.seen[0].headers["Content-Type"] == "application/json"


async def test_create_leaves_out_what_is_empty_and_says_undeployed():
    script = Script(ok(RECORD, 201))
    await script.registry().create_record(creation(version_id="", runtime="", deployed=False), "11")
    sent = body(script.seen[0])
    assert sent["desiredState"] == "UNDEPLOYED"
    assert not {"modelVersionId", "runtime"} & sent.keys()


@pytest.mark.parametrize(("deployed", "state"), [(True, "DEPLOYED"), (False, "UNDEPLOYED")])
async def test_smallest_update_still_sends_state_and_all_properties(deployed, state):
    script = Script(ok(RECORD))
    await script.registry().update_record(UpdateRecord(id="17", deployed=deployed, properties={}, reason="x"))
    assert script.paths() == ["PATCH v1alpha3/inference_services/17"]
    assert body(script.seen[0]) == {"desiredState": state, "customProperties": {}}


async def test_update_sends_what_is_set():
    script = Script(ok(RECORD))
    change = UpdateRecord(
        id="17",
        deployed=True,
        properties={"url": URL},
        reason="x",
        external_id="kserve:5a1e/1",
        version_id="5",
        runtime="triton",
    )
    await script.registry().update_record(change)
    assert body(script.seen[0]) == {
        "desiredState": "DEPLOYED",
        "customProperties": {"url": URL},
        "externalId": "kserve:5a1e/1",
        "modelVersionId": "5",
        "runtime": "triton",
    }


async def test_struct_property_is_sent_back_in_the_form_that_the_registry_takes():
    script = Script(ok(RECORD))
    struct = {"metadataType": "MetadataStructValue", "struct_value": '{"a":1}'}
    await script.registry().update_record(UpdateRecord("17", deployed=True, properties={"st": struct}, reason="x"))
    sent = body(script.seen[0])["customProperties"]
    assert sent == {"st": {"metadataType": "MetadataStructValue", "struct_value": "eyJhIjoxfQ=="}}


async def test_environment_is_created_by_name_alone():
    script = Script(ok({"id": "11", "name": "team-a", "customProperties": {}}, 201))
    assert await script.registry().create_environment("team-a") == "11"
    assert script.paths() == ["POST v1alpha3/serving_environments"]
    assert body(script.seen[0]) == {"name": "team-a"}  # an empty externalId would be a value, and collide


async def test_record_is_read_with_all_its_fields():
    record = await Script(ok(RECORD)).registry().find_record("kserve:5a1e/1")
    assert record is not None
    assert (record.id, record.name, record.external_id) == ("17", "iris/5a1e", "kserve:5a1e/1")
    assert (record.environment_id, record.model_id, record.version_id) == ("11", "1", "4")
    assert (record.runtime, record.deployed, record.url) == ("sklearn", False, "http://iris.example")


async def test_sparse_record_is_read_as_empty_texts_and_no_state():
    record = await Script(ok({"id": "17", "externalId": "x", "runtime": None})).registry().find_record("x")
    assert record is not None
    assert (record.name, record.runtime, record.version_id, record.deployed, record.properties) == (
        "",
        "",
        "",
        None,
        {},
    )


@pytest.mark.parametrize("properties", [{"isvc-sync": "text", "n": 5, "l": [1], "o": {"metadataType": 7}}, None, {}])
async def test_record_with_odd_properties_is_read(properties):
    record = await Script(ok(RECORD | {"customProperties": properties})).registry().find_record("kserve:5a1e/1")
    assert record is not None
    assert record.properties == (properties or {})
    assert record.stamp is None


async def test_find_says_none_when_the_registry_says_no():
    script = Script(error(404, "no inference service found for name=, parentResourceId=, externalId=x: not found"))
    assert await script.registry().find_record("x") is None
    assert script.seen[0].url.params["externalId"] == "x"


@pytest.mark.parametrize("name", ["a;b", "a&b=c", "a+b", "a b", "%41", "é", "x/y", "#1", "?"])
async def test_name_reaches_the_registry_as_it_is(name):
    script = Script(ok(RECORD | {"name": name}))
    assert await script.registry().find_record_by_name(name, "11") is not None
    query = httpx.QueryParams(script.seen[0].url.query.decode())
    assert query["name"] == escape_like(name)
    assert query["parentResourceId"] == "11"
    assert ";" not in script.seen[0].url.query.decode()  # the registry refuses it even in a value


def test_pattern_characters_are_escaped_the_escape_first():
    assert escape_like(r"100%_a\b") == r"100\%\_a\\b"


NO = "no inference service found for name=x: not found"
MULTIPLE = "multiple inference services found for name=x: not found"


def page(*names, token=""):
    items = [RECORD | {"name": name, "id": str(100 + at)} for at, name in enumerate(names)]
    return ok({"items": items, "nextPageToken": token, "pageSize": 200, "size": len(items)})


async def test_plain_name_that_is_not_found_costs_one_request():
    script = Script(error(404, NO))
    assert await script.registry().find_record_by_name("iris/5a1e", "11") is None
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    "answer",
    [error(404, MULTIPLE), error(404, NO), ok(RECORD | {"name": "fraudxmodel"})],
    ids=["several", "none", "other"],
)
async def test_doubtful_find_is_settled_by_comparing_the_whole_list(answer):
    script = Script(answer, page("fraudxmodel", token="MTox"), page("fraud_model"))
    record = await script.registry().find_record_by_name("fraud_model", "11")
    assert record is not None
    assert record.name == "fraud_model"
    assert script.paths()[1:] == ["GET v1alpha3/serving_environments/11/inference_services"] * 2
    assert dict(script.seen[1].url.params) == {"pageSize": "200", "orderBy": "ID", "sortOrder": "ASC"}
    assert dict(script.seen[2].url.params) == {
        "pageSize": "200", "orderBy": "ID", "sortOrder": "ASC", "nextPageToken": "MTox",
    }  # fmt: skip


async def test_list_without_the_exact_name_means_none():
    script = Script(error(404, MULTIPLE), page("IRIS", "iris "))
    assert await script.registry().find_record_by_name("iris", "11") is None


async def test_list_that_goes_in_circles_is_given_up():
    script = Script(error(404, MULTIPLE), page("a", token="x"), page("a", token="x"))
    with pytest.raises(TransientError, match="same page"):
        await script.registry().find_record_by_name("iris", "11")


async def test_environment_is_found_by_exact_name_only():
    script = Script(
        error(404, "multiple serving environments found"),
        ok({**EMPTY_PAGE, "items": [{"id": "9", "name": "team-b"}, {"id": "11", "name": "team_a"}]}),
    )
    assert await script.registry().find_environment("team_a") == "11"
    assert script.seen[0].url.params["name"] == r"team\_a"
    assert script.paths() == ["GET v1alpha3/serving_environment", "GET v1alpha3/serving_environments"]


async def test_failing_find_is_no_none():
    with pytest.raises(TransientError):
        await Script(error(500, "error listing: failed to connect")).registry().find_record("x")


async def test_failing_list_after_a_doubtful_find_is_no_none():
    script = Script(error(404, MULTIPLE), error(500, "failed to connect"))
    with pytest.raises(TransientError):
        await script.registry().find_record_by_name("iris", "11")


async def test_model_that_is_there_is_asked_for_once():
    script = Script(ok({"id": "1", "name": "fraud"}))
    assert await script.registry().model_exists("1")
    assert script.paths() == ["GET v1alpha3/registered_models/1"]


async def test_missing_model_is_believed_only_after_an_empty_list():
    script = Script(error(404, "no registered model found for id 999: not found"), ok(EMPTY_PAGE))
    assert not await script.registry().model_exists("999")
    assert script.paths() == ["GET v1alpha3/registered_models/999", "GET v1alpha3/registered_models"]
    assert dict(script.seen[1].url.params) == {"pageSize": "1", "filterQuery": "id=999"}


async def test_model_whose_404_was_a_fault_exists():
    found = ok({**EMPTY_PAGE, "items": [{"id": "1", "name": "fraud"}]})
    assert await Script(error(404, "no registered model found for id 1: not found"), found).registry().model_exists("1")


@pytest.mark.parametrize(
    "confirmation",
    [
        error(400, "error listing: invalid filter query, type mismatch or invalid value in comparison: bad request"),
        error(500, "failed to connect"),
        ok({**EMPTY_PAGE, "items": [{"id": "7", "name": "another"}]}),  # a server that ignores the filter
        httpx.Response(200, headers=TEXT, text="<html>log in</html>"),
    ],
)
async def test_absence_that_is_not_confirmed_is_transient(confirmation):
    script = Script(error(404, "no registered model found for id 1: not found"), confirmation)
    with pytest.raises(TransientError):
        await script.registry().model_exists("1")


async def test_version_says_its_model():
    assert await Script(ok({"id": "4", "registeredModelId": "1"})).registry().model_of_version("4") == "1"


async def test_missing_version_is_believed_only_after_an_empty_list():
    script = Script(error(404, "no model version found for id 4: not found"), ok(EMPTY_PAGE))
    assert await script.registry().model_of_version("4") is None
    assert dict(script.seen[1].url.params) == {"pageSize": "1", "filterQuery": "id=4"}


@pytest.mark.parametrize("number", ["", "01", "+1", "-1", "abc", "1 OR id=2", "2147483648", "../x"])
async def test_what_is_no_id_is_never_sent(number):
    script = Script()
    with pytest.raises(PermanentError):
        await script.registry().model_exists(number)


async def test_create_distinguishes_taken_from_a_missing_environment():
    taken = Script(error(409, "inference service with name 11:iris already exists: conflict"))
    with pytest.raises(ConflictError):
        await taken.registry().create_record(creation(), "11")
    missing = Script(error(404, "no serving environment found for id 11: not found"))
    with pytest.raises(NotFoundError):
        await missing.registry().create_record(creation(), "11")


async def test_update_of_what_seems_to_be_gone_is_transient():
    script = Script(error(404, "no InferenceService found for id 17: not found"))
    with pytest.raises(TransientError, match="look again"):
        await script.registry().update_record(UpdateRecord("17", deployed=True, properties={}, reason="x"))


@pytest.mark.parametrize("content", [b"", b"<html>log in</html>", b'{"id": 17}', b"[]", b'{"id": "\xff"}'])
async def test_success_that_does_not_decode_is_transient(content):
    with pytest.raises(TransientError, match="GET /inference_service"):
        await Script(httpx.Response(200, content=content)).registry().find_record("x")
