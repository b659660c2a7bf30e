"""What a registry answers to look-ups, lists and mistakes: the facts that the consumer's reads lean on."""

import base64

import pytest


async def find_service(target, **params):
    return await target.get("/inference_service", **params)


async def test_a_service_is_found_by_external_id_and_by_name_with_parent(registry_target):
    external_id = registry_target.name("kserve:5a1e/1")
    service = await registry_target.service("iris/5a1e", externalId=external_id)
    parent = service["servingEnvironmentId"]
    for params in (
        {"externalId": external_id},
        {"externalId": external_id, "parentResourceId": parent},
        {"name": "iris/5a1e", "parentResourceId": parent},
    ):
        answer = await find_service(registry_target, **params)
        assert (answer.status_code, answer.json()) == (200, service), params


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        ({}, 400, "invalid parameters call"),
        ({"name": "iris"}, 400, "invalid parameters call"),
        ({"name": "", "externalId": ""}, 400, "invalid parameters call"),
        ({"name": "iris", "parentResourceId": "abc"}, 400, "invalid parent resource ID"),
        ({"externalId": "nobody-has-this"}, 404, "no inference service found for"),
        ({"name": "nobody-has-this", "parentResourceId": "1"}, 404, "no inference service found for"),
    ],
)
async def test_a_find_that_finds_nothing_says_why(registry_target, params, status, words):
    answer = await find_service(registry_target, **params)
    assert (answer.status_code, answer.json()["message"].startswith(words)) == (status, True), answer.text


async def test_with_a_name_the_external_id_is_ignored(registry_target):
    service = await registry_target.service("named", externalId=registry_target.name("x"))
    params = {"name": "nope", "parentResourceId": service["servingEnvironmentId"], "externalId": service["externalId"]}
    assert (await find_service(registry_target, **params)).status_code == 404


async def test_an_external_id_is_compared_exactly(registry_target):
    service = await registry_target.service("exact", externalId=registry_target.name("a_b"))
    wild = service["externalId"].replace("_", "%")
    assert (await find_service(registry_target, externalId=wild)).status_code == 404


async def test_names_are_patterns_and_several_matches_are_not_found(registry_target):
    environment = await registry_target.environment()
    wanted = await registry_target.service("fraud_model", servingEnvironmentId=environment)

    async def find(name):
        return await find_service(registry_target, name=name, parentResourceId=environment)

    other = await registry_target.service("fraudxmodel", servingEnvironmentId=environment)
    several = await find("fraud_model")
    assert several.status_code == 404
    assert several.json()["message"].startswith("multiple inference services found for name=fraud_model,")
    assert (await find(r"fraud\_model")).json() == wanted
    assert (await find("fraudx%")).json() == other
    assert (await find("FRAUDXMODEL")).status_code == 404


async def test_environments_are_found_by_pattern_too(registry_target):
    await registry_target.environment("team_a")
    await registry_target.environment("teamxa")
    answer = await registry_target.get("/serving_environment", name=registry_target.name("team_a"))
    assert answer.json()["message"].startswith("multiple serving environments found for name=")
    escaped = registry_target.name(r"team\_a")
    found = await registry_target.get("/serving_environment", name=escaped)
    assert found.json()["name"] == registry_target.name("team_a")


async def test_one_sequence_numbers_all_kinds_and_an_id_of_another_kind_is_not_found(registry_target):
    model = await registry_target.model()
    environment = await registry_target.environment()
    assert int(environment) > int(model)
    assert (await registry_target.get(f"/serving_environments/{model}")).status_code == 404
    assert (await registry_target.get(f"/registered_models/{environment}")).status_code == 404


@pytest.mark.parametrize(
    ("record_id", "status"), [("0", 404), ("-1", 404), ("2147483647", 404), ("2147483648", 400), ("abc", 400)]
)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_ids_have_32_bits(registry_target, record_id, status, method):
    body = {"desiredState": None} if method == "PATCH" else None
    answer = await registry_target.request(method, f"/inference_services/{record_id}", body)
    assert answer.status_code == status
    if status == 404:
        assert answer.json()["message"] == f"no InferenceService found for id {record_id}: not found"


async def test_a_leading_zero_is_read_by_id_but_makes_another_name(registry_target):
    environment = await registry_target.environment()
    first = await registry_target.service("zero", servingEnvironmentId=environment)
    second = await registry_target.service("zero", servingEnvironmentId=f"0{environment}")
    assert second["servingEnvironmentId"] == environment
    assert (await registry_target.get(f"/inference_services/0{first['id']}")).json() == first


@pytest.mark.parametrize("collection", ["registered_models", "model_versions"])
async def test_absence_is_proven_by_a_filtered_list(registry_target, collection):
    fields = {"registeredModelId": "1"} if collection == "model_versions" else {}
    record = await registry_target.create(collection, name=registry_target.name("there"), **fields)

    async def items(record_id):
        answer = await registry_target.get(f"/{collection}", pageSize="1", filterQuery=f"id={record_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    assert await items(record["id"]) == [record]
    assert await items("2147483600") == []


async def test_a_broken_filter_is_400(registry_target):
    answer = await registry_target.get("/registered_models", pageSize="1", filterQuery=")(bad")
    assert (answer.status_code, "invalid filter query syntax" in answer.json()["message"]) == (400, True)


async def test_pages_by_id_hold_every_record_once(registry_target):
    environment = await registry_target.environment()
    made = [(await registry_target.service(f"p{n}", servingEnvironmentId=environment))["id"] for n in range(5)]
    path, seen, token = f"/serving_environments/{environment}/inference_services", [], ""
    for expected_size in (2, 2, 1):
        page = (await registry_target.get(path, pageSize="2", orderBy="ID", nextPageToken=token)).json()
        assert (page["size"], page["pageSize"], len(page["items"])) == (expected_size, 2, expected_size)
        seen += [item["id"] for item in page["items"]]
        token = page["nextPageToken"]
    assert (seen, token) == (made, "")


async def test_a_page_token_is_the_last_id_and_its_order_value(registry_target):
    environment = await registry_target.environment()
    first = await registry_target.service("p0", servingEnvironmentId=environment)
    await registry_target.service("p1", servingEnvironmentId=environment)
    page = await registry_target.get(f"/serving_environments/{environment}/inference_services", pageSize="1")
    assert base64.b64decode(page.json()["nextPageToken"]).decode() == f"{first['id']}:{first['id']}"


@pytest.mark.parametrize("size", [None, "0", "-1"])
async def test_without_a_page_size_everything_comes_at_once(registry_target, size):
    environment = await registry_target.environment()
    for number in range(3):
        await registry_target.service(f"p{number}", servingEnvironmentId=environment)
    params = {} if size is None else {"pageSize": size}
    page = (await registry_target.get(f"/serving_environments/{environment}/inference_services", **params)).json()
    assert (page["size"], page["nextPageToken"], page["pageSize"]) == (3, "", int(size or 0))


async def test_an_unknown_environment_has_no_services(registry_target):
    answer = await registry_target.get("/serving_environments/2147483600/inference_services")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


@pytest.mark.parametrize(
    "params",
    [{"pageSize": "abc"}, {"pageSize": "2147483648"}, {"pageSize": "1", "nextPageToken": "bad"}],
)
async def test_bad_paging_is_400(registry_target, params):
    assert (await registry_target.get("/inference_services", **params)).status_code == 400


async def test_descending_order_is_known_in_capitals_only(registry_target):
    environment = await registry_target.environment()
    made = [(await registry_target.service(f"p{n}", servingEnvironmentId=environment))["id"] for n in range(2)]

    async def order(sort):
        path = f"/serving_environments/{environment}/inference_services"
        return [item["id"] for item in (await registry_target.get(path, sortOrder=sort)).json()["items"]]

    assert await order("DESC") == made[::-1]
    assert await order("desc") == made


@pytest.mark.parametrize("path", ["/inference_services/", "/nope", "/serve_models"])
async def test_an_unknown_path_is_404_as_text(registry_target, path):
    answer = await registry_target.get(path)
    assert (answer.status_code, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_model_and_version_of_a_service(registry_target):
    model = await registry_target.model()
    await registry_target.create("model_versions", name="1", registeredModelId=model)
    newest = await registry_target.create("model_versions", name="2", registeredModelId=model)
    service = await registry_target.service("with-model", registeredModelId=model)
    path = f"/inference_services/{service['id']}"
    assert (await registry_target.get(f"{path}/model")).json()["id"] == model
    assert (await registry_target.get(f"{path}/version")).json() == newest


async def test_the_model_of_a_dangling_service_is_an_internal_error(registry_target):
    service = await registry_target.service("dangling", registeredModelId="2147483600")
    assert (await registry_target.get(f"/inference_services/{service['id']}/model")).status_code == 500
    assert (await registry_target.get(f"/inference_services/{service['id']}/version")).status_code == 404


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 422),
        (b'{"name": 5}', 400),
        (b'{"name": "nul\\u0000"}', 400),
        (b'{"NAME": "n", "registeredmodelid": "1", "servingEnvironmentID": "%s"} garbage', 201),
    ],
    ids=["empty", "cut", "array", "null", "number", "nul", "any case, garbage behind"],
)
async def test_bodies_are_read_as_go_reads_them(registry_target, content, status):
    if b"%s" in content:
        content %= (await registry_target.environment()).encode()
    assert (await registry_target.client.post("/inference_services", content=content)).status_code == status
