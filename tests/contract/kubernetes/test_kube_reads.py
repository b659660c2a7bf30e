"""Facts about lists, paging, selectors, shapes of answers and discovery (docs/kubernetes-facts.md)."""

import asyncio

import pytest

from tests.contract.kubernetes.kube_target import ISVC, MERGE, Place, create_definition, ok, served_path, until, version

PARTIAL = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def _create(place: Place, *names: str) -> None:
    for name in names:
        await place.create(name)


async def _names(place: Place, **query: str) -> list[str]:
    body = await ok(place.client.get(place.path, params=query))
    return [item["metadata"]["name"] for item in body["items"]]


async def test_f25_items_of_a_custom_resource_carry_their_kind(place: Place):
    await place.create("m")
    body = await ok(place.client.get(place.path))
    assert (body["kind"], body["apiVersion"]) == ("InferenceServiceList", "serving.kserve.io/v1beta1")
    assert [(item["kind"], item["apiVersion"]) for item in body["items"]] == [
        ("InferenceService", "serving.kserve.io/v1beta1")
    ]


async def test_items_of_a_built_in_kind_do_not_carry_their_kind(client):
    body = await ok(client.get("/api/v1/namespaces"))
    assert body["items"]
    assert all("kind" not in item and "apiVersion" not in item for item in body["items"])


async def test_the_version_of_a_list_is_at_least_that_of_its_items(place: Place):
    await _create(place, "a", "b")
    body = await ok(place.client.get(place.path))
    assert version(body) >= max(version(item) for item in body["items"])


async def test_f26_a_list_can_be_reduced_to_metadata(place: Place):
    await place.create("m", labels={"a": "b"})
    body = await ok(place.client.get(place.path, headers=PARTIAL))
    assert body["kind"] == "PartialObjectMetadataList"
    (item,) = body["items"]
    assert item["metadata"]["labels"] == {"a": "b"}
    assert "spec" not in item


async def test_pages_show_one_moment_whatever_happens_meanwhile(place: Place):
    await _create(place, "a", "b", "c", "d", "e")
    first = await ok(place.client.get(place.path, params={"limit": 2}))
    await place.delete("c")
    await _create(place, "bb")
    second = await ok(place.client.get(place.path, params={"limit": 2, "continue": first["metadata"]["continue"]}))
    third = await ok(place.client.get(place.path, params={"limit": 2, "continue": second["metadata"]["continue"]}))
    pages = (first, second, third)
    assert [[item["metadata"]["name"] for item in page["items"]] for page in pages] == [["a", "b"], ["c", "d"], ["e"]]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert first["metadata"]["remainingItemCount"] == 3
    assert not third["metadata"].get("continue")


async def test_a_continue_token_that_is_none_is_400(place: Place):
    response = await place.client.get(place.path, params={"continue": "nonsense"})
    assert response.status_code == 400


async def test_f17_a_list_from_the_future_is_504_with_a_cause(place: Place):
    future = str(int(await place.list_version()) + 100_000)
    response = await place.client.get(place.path, params={"resourceVersion": future})
    body = response.json()
    assert (response.status_code, body["reason"], response.headers["retry-after"]) == (504, "Timeout", "1")
    assert body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_f18_a_garbage_version_in_a_list_is_400(place: Place):
    response = await place.client.get(place.path, params={"resourceVersion": "garbage"})
    assert (response.status_code, response.json()["reason"]) == (400, "BadRequest")


async def test_an_exact_list_shows_the_past(place: Place):
    created = await place.create("a")
    await place.create("b")
    assert await _names(
        place, resourceVersion=created["metadata"]["resourceVersion"], resourceVersionMatch="Exact"
    ) == ["a"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=blue", ["a"]),
        ("team==blue", ["a"]),
        ("team!=blue", ["b", "c"]),
        ("team", ["a", "b"]),
        ("!team", ["c"]),
        ("team in (blue,red)", ["a", "b"]),
        ("team notin (blue)", ["b", "c"]),
        ("team,team!=red", ["a"]),
        ("example.com/x=1", ["c"]),
    ],
)
async def test_label_selectors(place: Place, selector: str, names: list[str]):
    await place.create("a", labels={"team": "blue"})
    await place.create("b", labels={"team": "red"})
    await place.create("c", labels={"example.com/x": "1"})
    assert await _names(place, labelSelector=selector) == names


async def test_a_selector_that_is_none_is_400(place: Place):
    assert (await place.client.get(place.path, params={"labelSelector": "=,=("})).status_code == 400


async def test_field_selectors_know_name_and_namespace(place: Place):
    await _create(place, "a", "b")
    assert await _names(place, fieldSelector="metadata.name=a") == ["a"]
    assert await _names(place, fieldSelector="metadata.namespace!=" + place.namespace) == []
    response = await place.client.get(place.path, params={"fieldSelector": "spec.x=a"})
    assert response.status_code == 400


async def test_events_are_found_by_the_object_they_are_about(place: Place):
    path = f"/api/v1/namespaces/{place.namespace}/events"
    for name, uid in (("e1", "u1"), ("e2", "u2")):
        involved = {"kind": "InferenceService", "namespace": place.namespace, "name": "m", "uid": uid}
        await ok(place.client.post(path, json={"metadata": {"name": name}, "involvedObject": involved, "reason": "R"}))
    found = await ok(place.client.get(path, params={"fieldSelector": "involvedObject.uid=u2,involvedObject.name=m"}))
    assert [item["metadata"]["name"] for item in found["items"]] == ["e2"]


async def test_a_table_has_the_columns_of_the_definition(place: Place):
    await place.create("m")
    body = {"status": {"url": "http://m", "conditions": [{"type": "Ready", "status": "True"}]}}
    await ok(place.client.patch(place.of("m") + "/status", json=body, headers=MERGE))
    table = await ok(place.client.get(place.path, headers=TABLE))
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:3] == ["Name", "URL", "Ready"]
    assert columns[-1] == "Age"
    assert table["rows"][0]["cells"][:3] == ["m", "http://m", "True"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_an_answer_in_a_form_that_nobody_speaks_is_406(place: Place):
    response = await place.client.get(place.path, headers={"Accept": "text/html"})
    assert response.status_code == 406


async def test_discovery_names_both_kinds_with_their_status(client):
    groups = await ok(client.get("/apis"))
    assert "serving.kserve.io" in [group["name"] for group in groups["groups"]]
    resources = await ok(client.get(ISVC))
    entry = next(entry for entry in resources["resources"] if entry["name"] == "inferenceservices")
    assert (entry["kind"], entry["namespaced"], entry["shortNames"]) == ("InferenceService", True, ["isvc"])
    assert {"get", "list", "watch", "patch"} <= set(entry["verbs"])
    assert "inferenceservices/status" in [entry["name"] for entry in resources["resources"]]
    llm = await ok(client.get("/apis/serving.kserve.io/v1alpha2"))
    assert "llminferenceservices" in [entry["name"] for entry in llm["resources"]]


async def test_the_version_is_1_36(client):
    body = await ok(client.get("/version"))
    assert (body["major"], body["minor"]) == ("1", "36")


async def test_f29_a_new_definition_is_served_a_moment_after_its_creation(place: Place):
    crd = await create_definition(place)
    path = served_path(crd, place.namespace)

    async def served() -> bool:
        return (await place.client.get(path)).status_code == 200

    await until(served, "the new kind is served")


async def test_f29_a_new_definition_has_no_conditions_at_first(place: Place):
    crd = await create_definition(place)
    assert not (crd.get("status") or {}).get("conditions")


async def test_f20_deleting_a_definition_ends_with_a_plain_404(place: Place):
    crd = await create_definition(place)
    path = served_path(crd, place.namespace)

    async def created() -> bool:
        body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Gadget"}
        held = body | {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        free = body | {"metadata": {"name": "free"}}
        answers = await asyncio.gather(*(place.client.post(path, json=one) for one in (held, free)))
        return all(answer.status_code in {201, 409} for answer in answers)

    await until(created, "objects of the new kind are created")
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    await ok(place.client.delete(definition))

    async def only_the_held_one() -> bool:
        answer = await ok(place.client.get(path))
        return [item["metadata"]["name"] for item in answer["items"]] == ["held"]

    await until(only_the_held_one, "the list shows only what a finalizer holds, and is still 200")
    await ok(place.client.patch(f"{path}/held", json={"metadata": {"finalizers": None}}, headers=MERGE))

    async def gone() -> bool:
        answer = await place.client.get(path)
        return answer.status_code == 404 and answer.text == "404 page not found\n"

    await until(gone, "the list is a plain 404")
