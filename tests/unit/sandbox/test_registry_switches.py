"""The registry's switches, its seeds and its control routes: what tests and demos do to it on purpose."""

import asyncio
from collections import Counter

import httpx
import pytest

from sandbox.faults import Fault
from sandbox.registry import Options, RegistryServer, serve

API = "/api/model_registry/v1alpha3"
SEEDS = {
    "registered_models": [{"id": "1", "name": "fraud"}],
    "model_versions": [{"id": "4", "name": "1", "registeredModelId": "1"}],
    "serving_environments": [{"id": "8", "name": "team-a"}],
    "inference_services": [
        {
            "id": 11,
            "name": "iris/5a1e",
            "externalId": "kserve:5a1e/1",
            "registeredModelId": "1",
            "servingEnvironmentId": "8",
            "desiredState": "UNDEPLOYED",
            "customProperties": {"url": {"metadataType": "MetadataStringValue", "string_value": "http://a"}},
        }
    ],
}


@pytest.fixture
async def server():
    async with serve() as server:
        server.seed(**SEEDS)
        yield server


@pytest.fixture
async def client(server):
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        yield client


READS_BY_ID = [f"/{name}" for name in ("registered_models/1", "inference_services/11", "inference_services/11/model")]
READS_BY_SEARCH = [
    "/registered_model?name=fraud",
    "/inference_service?externalId=x",
    "/inference_services",
    "/registered_models?pageSize=1&filterQuery=id%3D1",
    "/serving_environments/8/inference_services",
    "/inference_services/11/serves",
]


@pytest.mark.parametrize(("database", "search_status"), [("stopped", 500), ("refusing", 400)])
async def test_a_faulty_database_hides_what_exists(server, client, database, search_status):
    server.switch(database=database)
    assert {(await client.get(API + path)).status_code for path in READS_BY_ID} == {404}
    assert {(await client.get(API + path)).status_code for path in READS_BY_SEARCH} == {search_status}
    patched = await client.patch(f"{API}/inference_services/11", json={"desiredState": None})
    assert patched.json()["message"] == "no InferenceService found for id 11: not found"
    service = {"name": "x", "registeredModelId": "1", "servingEnvironmentId": "8"}
    created = await client.post(f"{API}/inference_services", json=service)
    assert created.json()["message"] == "no serving environment found for id 8: not found"
    for collection, body in {
        "serving_environments": {"name": "x"},
        "registered_models": {"name": "x"},
        "model_versions": {"name": "x", "registeredModelId": "1"},
    }.items():
        assert (await client.post(f"{API}/{collection}", json=body)).status_code == 500
    assert (await client.get("/readyz/health")).status_code == 503
    server.switch(database="well")
    assert (await client.get(f"{API}/inference_services/11")).status_code == 200


async def test_a_fault_of_the_database_writes_nothing(server, client):
    before = server.registry.dump()
    server.switch(database="stopped")
    await client.patch(f"{API}/inference_services/11", json={"description": "x"})
    await client.post(f"{API}/serving_environments", json={"name": "x"})
    assert server.registry.dump() == before


async def test_before_the_database_was_reached_every_path_is_503_as_text(server, client):
    server.switch(database="never_reached")
    for path in (f"{API}/inference_services/11", f"{API}/nope", "/api/model_registry/v9/x", "/readyz/health"):
        answer = await client.get(path)
        assert (answer.status_code, answer.text.startswith("Datastore service is down")) == (503, True)


async def test_requests_beyond_the_connections_of_the_database_are_told_that_nothing_exists(server, client):
    server.switch(connection_limit=5, statement_s=1.0)  # long enough for all eight to be under way at once

    async def statuses(send):
        return Counter(answer.status_code for answer in await asyncio.gather(*(send(number) for number in range(8))))

    assert await statuses(lambda _: client.get(f"{API}/inference_services/11")) == {200: 5, 404: 3}
    assert await statuses(lambda _: client.get(f"{API}/inference_services")) == {200: 5, 400: 3}
    service = {"registeredModelId": "1", "servingEnvironmentId": "8"}

    def create(number):
        return client.post(f"{API}/inference_services", json={**service, "name": str(number)})

    assert await statuses(create) == {201: 5, 404: 3}
    assert (await client.get(f"{API}/inference_services/11")).status_code == 200


async def test_a_proxy_in_front_wants_a_token(server, client):
    server.switch(require_token="t0")
    refused = await client.get(f"{API}/registered_models")
    assert (refused.status_code, refused.headers["content-type"]) == (401, "text/plain; charset=utf-8")
    headers = {"Authorization": "Bearer t0"}
    assert (await client.get(f"{API}/registered_models", headers=headers)).status_code == 200


async def test_both_api_versions_serve_the_same_records(client):
    paths = (f"/api/model_registry/{version}/inference_services/11" for version in ("v1", "v1alpha3"))
    first, second = [(await client.get(path)).json() for path in paths]
    assert first == second


async def test_a_version_that_is_gone_answers_410_and_the_other_one_works(server, client):
    server.switch(gone=["v1alpha3"])
    assert (await client.get(f"{API}/registered_models")).status_code == 410
    assert (await client.get("/api/model_registry/v1/registered_models")).status_code == 200


async def test_a_sunset_is_announced_on_every_v1alpha3_answer(server, client):
    server.switch(sunset="Sat, 01 May 2027 00:00:00 GMT")
    for path in ("registered_models/1", "registered_models/999"):
        answer = await client.get(f"{API}/{path}")
        assert (answer.headers["sunset"], answer.headers["deprecation"]) == ("Sat, 01 May 2027 00:00:00 GMT", "true")
    assert "sunset" not in (await client.get("/api/model_registry/v1/registered_models")).headers


async def test_the_release_v0_3_8_knows_no_v1():
    async with serve(Options(profile="v0.3.8")) as server, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{server.url}/api/model_registry/v1/registered_models")
        assert (answer.status_code, answer.text) == (404, "404 page not found\n")


async def test_later_releases_filter_every_list_and_refuse_an_unknown_order():
    async with serve(Options(profile="v1")) as server, httpx.AsyncClient(trust_env=False) as client:
        server.seed(**SEEDS)
        base = f"{server.url}/api/model_registry/v1"

        async def sizes(path, **params):
            answer = await client.get(base + path, params=params)
            return answer.json().get("size", answer.status_code)

        assert await sizes("/inference_services", filterQuery='name = "nope"') == 0
        assert await sizes("/serving_environments", filterQuery=")(bad") == 400
        assert await sizes("/serving_environments/8/inference_services", name="iris/5a1e") == 1
        assert await sizes("/serving_environments/8/inference_services", externalId="nope") == 0
        assert await sizes("/inference_services", orderBy="foo") == 400


async def test_on_mysql_names_that_differ_in_case_collide():
    async with serve(Options(case_insensitive=True)) as server, httpx.AsyncClient(trust_env=False) as client:
        server.seed(**SEEDS)
        answer = await client.post(f"{server.url}{API}/registered_models", json={"name": "FRAUD"})
        assert answer.status_code == 409


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="no registry profile 'v9'"):
        RegistryServer(Options(profile="v9"))


async def test_seeds_keep_their_ids_and_new_records_go_on_above(server, client):
    service = (await client.get(f"{API}/inference_services/11")).json()
    assert (service["name"], service["desiredState"]) == ("iris/5a1e", "UNDEPLOYED")
    assert (await client.get(f"{API}/registered_models/1")).json()["state"] == "LIVE"
    found = await client.get(f"{API}/inference_service", params={"name": "iris/5a1e", "parentResourceId": "8"})
    assert found.json() == service
    created = await client.post(f"{API}/serving_environments", json={"name": "team-b"})
    assert created.json()["id"] == "12"


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        ({"registered_models": [{"id": "1", "name": "again"}]}, "id 1 is taken"),
        ({"registered_models": [{"id": "20", "name": "fraud"}]}, "name fraud is taken"),
        ({"registered_models": [{"name": "no id"}]}, "KeyError"),
        ({"registered_models": [{"id": "20", "name": "x", "colour": "red"}]}, "unknown fields colour"),
        ({"models": []}, "no collection 'models'"),
        ({"serve_models": [{"id": "1", "name": "x", "modelVersionId": "4"}]}, "cannot be seeded"),
    ],
)
async def test_a_seed_that_cannot_be_put_in_names_itself(client, seed, words):
    answer = await client.post("/_sandbox/registry", json=seed)
    assert (answer.status_code, words in answer.text) == (400, True), answer.text


async def test_a_registry_that_cannot_be_put_changes_nothing(server, client):
    before = server.registry.dump()
    twice = {"registered_models": [{"id": "3", "name": "x"}, {"id": "3", "name": "y"}]}
    assert (await client.put("/_sandbox/registry", json=twice)).status_code == 400
    assert server.registry.dump() == before


async def test_a_dump_put_back_is_the_same_registry(server, client):
    dump = (await client.get("/_sandbox/registry")).json()
    assert dump["inference_services"] == server.records("inference_services")
    put = await client.put("/_sandbox/registry", json=dump)
    assert put.json() == dump


async def test_putting_a_registry_replaces_what_was_there(server, client):
    await client.put("/_sandbox/registry", json={"registered_models": [{"id": "3", "name": "only"}]})
    assert [record["id"] for record in server.records()] == ["3"]


async def test_switches_are_read_and_changed_by_http(client):
    changed = (await client.put("/_sandbox/switches", json={"database": "stopped"})).json()
    assert (changed["database"], changed["versions"]) == ("stopped", ["v1alpha3", "v1"])
    assert (await client.get("/_sandbox/switches")).json() == changed
    assert (await client.get(f"{API}/inference_services")).status_code == 500


@pytest.mark.parametrize("change", [{"database": "tired"}, {"colour": "red"}, {"connection_limit": 0}])
async def test_a_switch_that_does_not_exist_is_refused(server, client, change):
    before = server.switches
    assert (await client.put("/_sandbox/switches", json=change)).status_code == 400
    assert server.switches == before


async def test_requests_are_counted_by_route_whatever_the_version(server, client):
    for path in (f"{API}/inference_services/11", "/api/model_registry/v1/inference_services/12", f"{API}/nope"):
        await client.get(path)
    assert server.requests.by_route == {("GET", "/inference_services/{id}"): 2, ("GET", "unknown"): 1}


async def test_a_lost_reply_leaves_the_record_behind(server, client):
    server.faults.set(Fault(method="POST", lost_reply_rate=1, next_requests=1))
    with pytest.raises(httpx.TransportError):
        await client.post(f"{API}/serving_environments", json={"name": "lost"})
    assert server.faults.injected == {"lost_reply": 1}
    assert (await client.get(f"{API}/serving_environment", params={"name": "lost"})).status_code == 200


async def test_the_model_of_a_panic_closes_one_connection_and_the_server_lives_on(client):
    serve_model = {"modelVersionId": "4", "externalId": "x"}
    assert (await client.post(f"{API}/inference_services/11/serves", json=serve_model)).status_code == 201
    with pytest.raises(httpx.TransportError):
        await client.post(f"{API}/inference_services/11/serves", json=serve_model)
    assert (await client.get(f"{API}/inference_services/11/serves")).json()["size"] == 1


async def test_a_full_record_with_an_id_posted_to_the_versions_of_a_model_updates(client):
    body = {"id": "4", "name": "ignored", "registeredModelId": "1", "author": "ana"}
    answer = await client.post(f"{API}/registered_models/1/versions", json=body)
    assert (answer.status_code, answer.json()["name"], answer.json()["author"]) == (201, "1", "ana")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("name=a;b", 400, "invalid semicolon separator in query"),
        ("name=%zz", 400, "invalid URL escape"),
        ("name=%ff", 400, "invalid filter query, type mismatch"),
        ("name=a%00", 400, "contains null bytes which are not allowed"),
        ("name=fraud&name=nope", 200, '"name":"fraud"'),
        ("name=fr+ud", 404, "name=fr ud"),
        ("colour=red&name=fraud", 200, '"name":"fraud"'),
    ],
)
async def test_queries_are_read_as_the_server_reads_them(client, query, status, words):
    answer = await client.get(f"{API}/registered_model?{query}")
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


async def test_a_body_has_no_limit(client):
    body = {"name": "big", "description": "x" * 5_000_000}
    assert (await client.post(f"{API}/registered_models", json=body)).status_code == 201


async def test_artifacts_are_created_and_updated_under_a_version(client):
    path = f"{API}/model_versions/4/artifacts"
    artifact = (await client.post(path, json={"artifactType": "model-artifact", "name": "a", "uri": "s3://b"})).json()
    update = {"artifactType": "model-artifact", "id": artifact["id"], "uri": "s3://c", "state": "LIVE"}
    answer = await client.post(path, json=update)
    assert (answer.status_code, answer.json()["uri"], answer.json()["name"]) == (201, "s3://c", "a")
    assert (await client.post(path, json={"artifactType": "doc-artifact", "name": "d"})).status_code == 400


async def test_an_id_in_the_path_is_taken_as_it_was_sent(client):
    answer = await client.get(f"{API}/registered_models/%31")
    assert (answer.status_code, 'parsing \\"%31\\"' in answer.text) == (400, True)


async def test_gated_versions_cannot_be_served(client):
    gated = {"hf_gated": {"metadataType": "MetadataStringValue", "string_value": "auto"}}
    version = {"name": "g", "registeredModelId": "1", "customProperties": gated}
    version_id = (await client.post(f"{API}/model_versions", json=version)).json()["id"]
    answer = await client.post(f"{API}/inference_services/11/serves", json={"modelVersionId": version_id})
    assert answer.status_code == 400
