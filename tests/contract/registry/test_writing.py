"""What a registry does with creates and updates: the facts that the consumer's writes lean on."""

import asyncio
from collections import Counter

import pytest

STRING = "MetadataStringValue"


def text(value):
    return {"metadataType": STRING, "string_value": value}


async def state_after(target, service, body):
    answer = await target.patch("inference_services", service["id"], body)
    assert answer.status_code == 200, answer.text
    return answer.json().get("desiredState")


async def test_a_create_answers_201_with_string_id_default_state_and_equal_times(registry_target):
    service = await registry_target.service()
    assert service["id"].isdecimal()
    assert service["desiredState"] == "DEPLOYED"
    assert service["customProperties"] == {}
    assert service["createTimeSinceEpoch"] == service["lastUpdateTimeSinceEpoch"]
    assert "description" not in service


@pytest.mark.parametrize("body", [{}, {"description": "x"}, {"customProperties": {}}])
async def test_a_patch_without_desired_state_deploys(registry_target, body):
    service = await registry_target.service(desiredState="UNDEPLOYED")
    assert await state_after(registry_target, service, body) == "DEPLOYED"


async def test_a_patch_whose_body_is_null_deploys_too(registry_target):
    service = await registry_target.service(desiredState="UNDEPLOYED")
    answer = await registry_target.client.patch(f"/inference_services/{service['id']}", content=b"null")
    assert answer.json()["desiredState"] == "DEPLOYED"


async def test_a_patch_with_desired_state_null_keeps_it(registry_target):
    service = await registry_target.service(desiredState="UNDEPLOYED")
    assert await state_after(registry_target, service, {"desiredState": None, "runtime": "r"}) == "UNDEPLOYED"


async def test_a_create_with_desired_state_null_stores_none_at_all(registry_target):
    service = await registry_target.service(desiredState=None)
    assert "desiredState" not in service


@pytest.mark.parametrize("collection", ["registered_models", "model_versions"])
async def test_a_patch_of_a_model_or_version_without_state_unarchives_it(registry_target, collection):
    fields = {"registeredModelId": await registry_target.model("parent")} if collection == "model_versions" else {}
    record = await registry_target.create(collection, name=registry_target.name("archived"), state="ARCHIVED", **fields)
    kept = await registry_target.patch(collection, record["id"], {"state": None})
    assert kept.json()["state"] == "ARCHIVED"
    lost = await registry_target.patch(collection, record["id"], {"description": "x"})
    assert lost.json()["state"] == "LIVE"


async def test_every_successful_patch_moves_the_update_time_and_nothing_moves_the_creation(registry_target):
    service = await registry_target.service()
    patched = (await registry_target.patch("inference_services", service["id"], {"desiredState": None})).json()
    assert int(patched["lastUpdateTimeSinceEpoch"]) > int(service["lastUpdateTimeSinceEpoch"])
    assert patched["createTimeSinceEpoch"] == service["createTimeSinceEpoch"]


async def test_custom_properties_are_replaced_as_a_whole_and_kept_when_not_sent(registry_target):
    service = await registry_target.service(customProperties={"url": text("http://a"), "user": text("mine")})

    async def properties_after(body):
        answer = await registry_target.patch("inference_services", service["id"], {"desiredState": None, **body})
        return answer.json()["customProperties"]

    assert set(await properties_after({})) == {"url", "user"}
    assert await properties_after({"customProperties": {"url": text("http://b")}}) == {"url": text("http://b")}
    assert await properties_after({"customProperties": None}) == {"url": text("http://b")}
    assert await properties_after({"customProperties": {}}) == {}


@pytest.mark.parametrize("field", ["runtime", "description", "modelVersionId", "externalId"])
async def test_null_keeps_a_field(registry_target, field):
    value = registry_target.name("kept") if field != "modelVersionId" else "4"
    service = await registry_target.service(**{field: value})
    answer = await registry_target.patch("inference_services", service["id"], {"desiredState": None, field: None})
    assert answer.json()[field] == value


async def test_a_version_id_cannot_be_cleared(registry_target):
    service = await registry_target.service(modelVersionId="4")
    answer = await registry_target.patch("inference_services", service["id"], {"modelVersionId": ""})
    assert answer.status_code == 400


@pytest.mark.parametrize("field", ["name", "registeredModelId", "servingEnvironmentId", "id", "foo"])
async def test_immutable_and_unknown_fields_are_refused(registry_target, field):
    service = await registry_target.service()
    answer = await registry_target.patch("inference_services", service["id"], {"desiredState": None, field: "1"})
    assert answer.status_code == 400
    assert answer.json() == {"code": "Bad Request", "message": f'json: unknown field "{field}"'}


@pytest.mark.parametrize("method", ["DELETE", "PUT", "HEAD", "OPTIONS"])
async def test_there_is_no_delete(registry_target, method):
    service = await registry_target.service()
    answer = await registry_target.request(method, f"/inference_services/{service['id']}")
    assert answer.status_code == 405
    assert answer.content == b""
    assert sorted(answer.headers.get_list("allow")) == ["GET", "PATCH"]
    assert (await registry_target.get(f"/inference_services/{service['id']}")).json() == service


async def test_an_external_id_is_unique_across_kinds(registry_target):
    external_id = registry_target.name("external")
    await registry_target.create("registered_models", name=registry_target.name("owner"), externalId=external_id)
    model = {"name": registry_target.name("v"), "registeredModelId": "1"}
    service = {"registeredModelId": "1", "servingEnvironmentId": await registry_target.environment(), "name": "s"}
    for collection, fields in {
        "registered_models": {"name": registry_target.name("other")},
        "model_versions": model,
        "serving_environments": {"name": registry_target.name("e")},
        "inference_services": service,
    }.items():
        answer = await registry_target.request("POST", f"/{collection}", {**fields, "externalId": external_id})
        assert answer.status_code == 409, collection


async def test_an_empty_external_id_is_a_value_like_any_other(registry_target):
    for stem in ("first", "second"):
        fields = {"name": registry_target.name(stem), "externalId": ""}
        answer = await registry_target.request("POST", "/serving_environments", fields)
    assert answer.status_code == 409


async def test_a_conflict_blames_the_name_even_when_the_external_id_collided(registry_target):
    environment = await registry_target.environment()
    external_id = registry_target.name("x")
    await registry_target.service("one", servingEnvironmentId=environment, externalId=external_id)
    fields = {"registeredModelId": "1", "servingEnvironmentId": environment, "name": "two", "externalId": external_id}
    created = await registry_target.request("POST", "/inference_services", fields)
    blame = {"code": "Conflict", "message": f"inference service with name {environment}:two already exists: conflict"}
    assert (created.status_code, created.json()) == (409, blame)
    two = await registry_target.service("two", servingEnvironmentId=environment)
    patched = await registry_target.patch("inference_services", two["id"], {"externalId": external_id})
    assert (patched.status_code, patched.json()) == (409, blame)


async def test_service_names_are_unique_in_their_environment_only(registry_target):
    first = await registry_target.service("iris")
    await registry_target.service("iris", servingEnvironmentId=await registry_target.environment("another"))
    again = {"name": "iris", "registeredModelId": "1", "servingEnvironmentId": first["servingEnvironmentId"]}
    assert (await registry_target.request("POST", "/inference_services", again)).status_code == 409


async def test_only_the_environment_is_checked_on_create(registry_target):
    environment = await registry_target.environment()
    nowhere = {"registeredModelId": "2147483600", "modelVersionId": "2147483601"}
    dangling = await registry_target.service("dangling", servingEnvironmentId=environment, **nowhere)
    assert dangling["registeredModelId"] == "2147483600"
    fields = {"registeredModelId": "1", "servingEnvironmentId": "2147483602", "name": "x"}
    answer = await registry_target.request("POST", "/inference_services", fields)
    message = "no serving environment found for id 2147483602: not found"
    assert (answer.status_code, answer.json()) == (404, {"code": "Not Found", "message": message})


async def test_concurrent_patches_of_one_record_lose_updates(registry_target):
    service = await registry_target.service()
    lost = 0
    for number in range(20):
        bodies = ({"desiredState": None, field: str(number)} for field in ("runtime", "description"))
        await asyncio.gather(*(registry_target.patch("inference_services", service["id"], body) for body in bodies))
        record = (await registry_target.get(f"/inference_services/{service['id']}")).json()
        lost += (record.get("runtime"), record.get("description")) != (str(number), str(number))
    assert lost > 0


@pytest.mark.parametrize("key", ["name", "externalId"])
@pytest.mark.parametrize(
    "collection", ["registered_models", "model_versions", "serving_environments", "inference_services"]
)
async def test_creates_race_safely(registry_target, collection, key):
    extra = {
        "model_versions": {"registeredModelId": "1"},
        "inference_services": {
            "registeredModelId": "1",
            "servingEnvironmentId": await registry_target.environment("race-environment"),
        },
    }.get(collection, {})
    race = registry_target.name("race")
    bodies = [
        {**extra, "name": race if key == "name" else f"{race}-{number}", **({key: race} if key != "name" else {})}
        for number in range(20)
    ]
    answers = await asyncio.gather(*(registry_target.request("POST", f"/{collection}", body) for body in bodies))
    assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 19}


async def test_an_omitted_name_is_invented_so_a_repeated_create_makes_a_second_record(registry_target):
    environment = await registry_target.environment()
    first = await registry_target.service(servingEnvironmentId=environment, name=None)
    second = await registry_target.service(servingEnvironmentId=environment, name=None)
    assert first["name"] != second["name"]


@pytest.mark.parametrize("name", ["a:b/c", "quo'te\"s", "日本語-😀", " blanks ", "tab\there", "back\\slash"])
async def test_names_round_trip(registry_target, name):
    assert (await registry_target.service(name))["name"] == name


async def test_a_long_name_is_an_internal_error_although_it_is_permanent(registry_target):
    environment = await registry_target.environment()
    fields = {"registeredModelId": "1", "servingEnvironmentId": environment}
    fits = "n" * (255 - len(environment) - 1)
    await registry_target.service(fits, servingEnvironmentId=environment)
    answer = await registry_target.request("POST", "/inference_services", {**fields, "name": fits + "n"})
    assert answer.status_code == 500
    assert any(phrase in answer.json()["message"] for phrase in ("value too long", "Data too long"))


@pytest.mark.parametrize("body", [{"name": "x", "registeredModelId": "1"}, {"name": "x", "servingEnvironmentId": "1"}])
async def test_a_missing_required_field_is_422_whose_code_says_bad_request(registry_target, body):
    answer = await registry_target.request("POST", "/inference_services", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "Bad Request")
    assert answer.json()["message"].endswith("is zero value.")


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (text("x" * 100_000), 200),
        ({"metadataType": "MetadataIntValue", "int_value": "2147483647"}, 200),
        ({"metadataType": "MetadataIntValue", "int_value": "2147483648"}, 400),
        ({"metadataType": "MetadataIntValue", "int_value": 5}, 400),
        ({"metadataType": STRING}, 200),
        ({"string_value": "x"}, 400),
        (None, 400),
        ("plain", 400),
    ],
    ids=["long", "int32", "int64", "number", "no value", "no type", "null", "scalar"],
)
async def test_custom_properties_are_tagged_and_integers_have_32_bits(registry_target, value, status):
    service = await registry_target.service()
    body = {"desiredState": None, "customProperties": {"k": value}}
    assert (await registry_target.patch("inference_services", service["id"], body)).status_code == status


async def test_a_struct_property_poisons_every_later_patch_that_keeps_it(registry_target):
    struct = {"metadataType": "MetadataStructValue", "struct_value": "eyJhIjoxfQ=="}
    service = await registry_target.service(customProperties={"st": struct})
    assert service["customProperties"]["st"]["struct_value"] == '{"a":1}'
    kept = await registry_target.patch("inference_services", service["id"], {"desiredState": None})
    assert (kept.status_code, "illegal base64 data" in kept.json()["message"]) == (400, True)
    body = {"desiredState": None, "customProperties": {}}
    assert (await registry_target.patch("inference_services", service["id"], body)).status_code == 200
