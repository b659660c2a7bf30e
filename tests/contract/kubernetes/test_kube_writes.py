"""Facts about writes: generation, status, conflicts, finalizers, patches, rights (docs/kubernetes-facts.md)."""

import asyncio

import pytest

from tests.contract.kubernetes.kube_target import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Place,
    Target,
    isvc,
    ok,
    version,
    watch,
)

SPEC = {"spec": {"predictor": {"model": {"storageUri": "s3://models/v2"}}}}


async def test_f01_a_created_object_has_generation_1(place: Place):
    assert (await place.create("m"))["metadata"]["generation"] == 1


async def test_f01_creating_without_the_right_is_403(place: Place, target: Target):
    async with target.client(target.limited_token) as limited:
        response = await limited.post(place.path, json=isvc("m"))
    assert (response.status_code, response.json()["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "inferenceservices" in API group "serving.kserve.io"' in response.json()["message"]


async def test_f01_a_label_raises_resource_version_but_not_generation(place: Place):
    before = await place.create("m")
    after = await place.label("m", team="blue")
    assert version(after) > version(before)
    assert after["metadata"]["generation"] == 1


async def test_f02_a_patch_that_changes_nothing_makes_no_version_and_no_event(place: Place):
    before = await place.create("m", labels={"team": "blue"})
    async with watch(place.client, place.path, resourceVersion=version(before), timeoutSeconds=2) as stream:
        same = await place.label("m", team="blue")
        assert version(same) == version(before)
        await place.label("m", team="red")
        (event,) = await stream.take(1)
    assert event["object"]["metadata"]["labels"] == {"team": "red"}


async def test_f03_a_status_patch_raises_resource_version_but_not_generation(place: Place):
    before = await place.create("m")
    after = await place.merge("m", {"status": {"url": "http://m.example.com"}}, part="status")
    assert version(after) > version(before)
    assert (after["metadata"]["generation"], after["status"]["url"]) == (1, "http://m.example.com")


async def test_f03_a_status_patch_changes_nothing_else(place: Place):
    await place.create("m")
    after = await place.merge("m", {"metadata": {"labels": {"a": "b"}}, "status": {"url": "u"}} | SPEC, part="status")
    assert after["spec"]["predictor"]["model"]["storageUri"] == "s3://models/v1"
    assert after["metadata"]["generation"] == 1


async def test_f03_a_patch_of_the_object_leaves_its_status_alone(place: Place):
    await place.create("m")
    await place.merge("m", {"status": {"url": "right"}}, part="status")
    after = await place.merge("m", {"status": {"url": "wrong"}})
    assert after["status"]["url"] == "right"


async def test_f03_a_spec_change_raises_generation_by_1(place: Place):
    await place.create("m")
    assert (await place.merge("m", SPEC))["metadata"]["generation"] == 2


async def test_f03_the_status_in_a_create_body_is_dropped(place: Place):
    created = await ok(place.client.post(place.path, json=isvc("m") | {"status": {"url": "http://m"}}))
    assert "status" not in created


async def test_f04_a_finalizer_turns_delete_into_a_modification(place: Place):
    before = await place.create("m", finalizers=["example.com/hold"])
    async with watch(place.client, place.path, resourceVersion=version(before)) as stream:
        answer = await place.delete("m")
        (event,) = await stream.take(1)
    assert event["type"] == "MODIFIED"
    assert event["object"]["metadata"]["deletionTimestamp"]
    assert event["object"]["metadata"]["generation"] == 2
    assert answer["kind"] == "InferenceService"


async def test_f04_deleting_twice_changes_nothing(place: Place):
    await place.create("m", finalizers=["example.com/hold"])
    first = await place.delete("m")
    assert version(await place.delete("m")) == version(first)


async def test_f05_removing_the_last_finalizer_deletes_under_a_newer_version(place: Place):
    await place.create("m", finalizers=["example.com/hold"])
    held = await place.delete("m")
    async with watch(place.client, place.path, resourceVersion=version(held)) as stream:
        await place.merge("m", {"metadata": {"finalizers": None}})
        (event,) = await stream.take(1)
    assert event["type"] == "DELETED"
    assert version(event["object"]) > version(held)
    assert event["object"]["metadata"]["finalizers"] == ["example.com/hold"]


async def test_f05_who_removes_the_last_finalizer_is_told_the_old_version(place: Place):
    await place.create("m", finalizers=["example.com/hold"])
    held = await place.delete("m")
    answer = await place.merge("m", {"metadata": {"finalizers": None}})
    assert version(answer) == version(held)


async def test_deleting_without_finalizers_answers_with_a_status(place: Place):
    created = await place.create("m")
    answer = await place.delete("m")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"]["uid"] == created["metadata"]["uid"]


async def test_an_object_without_finalizers_goes_without_a_deletion_timestamp(place: Place):
    created = await place.create("m")
    async with watch(place.client, place.path, resourceVersion=version(created)) as stream:
        await place.delete("m")
        (event,) = await stream.take(1)
    assert event["type"] == "DELETED"
    assert "deletionTimestamp" not in event["object"]["metadata"]
    assert version(event["object"]) > version(created)


async def test_f23_a_stale_version_in_a_merge_patch_is_409(place: Place):
    stale = await place.create("m")
    await place.label("m", a="b")
    body = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"], "labels": {"c": "d"}}}
    response = await place.client.patch(place.of("m"), json=body, headers=MERGE)
    assert (response.status_code, response.json()["reason"]) == (409, "Conflict")


async def test_f23_a_foreign_uid_in_a_merge_patch_is_422(place: Place):
    await place.create("m")
    body = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}
    response = await place.client.patch(place.of("m"), json=body, headers=MERGE)
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")


async def test_f23_a_failing_test_in_a_json_patch_is_422_and_changes_nothing(place: Place):
    before = await place.create("m")
    body = [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "test", "path": "/metadata/uid", "value": "other"},
    ]
    response = await place.client.patch(place.of("m"), json=body, headers=JSON_PATCH)
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")
    assert version(await place.get("m")) == version(before)


async def test_f23_a_passing_test_in_a_json_patch_lets_the_rest_through(place: Place):
    before = await place.create("m", labels={"x": "y"})
    body = [
        {"op": "test", "path": "/metadata/uid", "value": before["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": before["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels/example.com~1id", "value": "7"},
    ]
    after = await ok(place.client.patch(place.of("m"), json=body, headers=JSON_PATCH))
    assert after["metadata"]["labels"] == {"x": "y", "example.com/id": "7"}


async def test_f23_a_json_patch_cannot_add_into_a_missing_map(place: Place):
    await place.create("m")
    body = [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]
    response = await place.client.patch(place.of("m"), json=body, headers=JSON_PATCH)
    assert response.status_code == 422


async def test_f23_strategic_merge_is_415_for_a_custom_resource(place: Place):
    await place.create("m")
    response = await place.client.patch(place.of("m"), json={"metadata": {}}, headers=STRATEGIC)
    assert (response.status_code, response.json()["reason"]) == (415, "UnsupportedMediaType")


async def test_f23_strategic_merge_works_for_a_built_in_kind(place: Place):
    path = f"/api/v1/namespaces/{place.namespace}/configmaps"
    await ok(place.client.post(path, json={"metadata": {"name": "c"}, "data": {"a": "1"}}))
    after = await ok(place.client.patch(f"{path}/c", json={"data": {"b": "2"}}, headers=STRATEGIC))
    assert after["data"] == {"a": "1", "b": "2"}


async def test_f23_apply_without_a_field_manager_is_422(place: Place):
    response = await place.client.patch(place.of("m"), json=isvc("m"), headers=APPLY)
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")


async def test_apply_creates_and_then_changes(place: Place):
    path = place.of("m") + "?fieldManager=tests"
    first = await place.client.patch(path, json=isvc("m"), headers=APPLY)
    assert first.status_code == 201
    second = await ok(place.client.patch(path, json=isvc("m", labels={"a": "b"}), headers=APPLY))
    assert second["metadata"]["labels"] == {"a": "b"}


async def test_f24_the_verb_patch_is_enough_to_clear_finalizers(place: Place, target: Target):
    await place.create("m", finalizers=["example.com/hold"])
    async with target.client(target.limited_token) as limited:
        await ok(limited.patch(place.of("m"), json={"metadata": {"finalizers": None}}, headers=MERGE))
    assert "finalizers" not in (await place.get("m"))["metadata"]


async def test_an_unknown_token_is_401(target: Target):
    async with target.client("who-is-that") as stranger:
        response = await stranger.get("/apis/serving.kserve.io/v1beta1/inferenceservices")
    assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")


async def test_a_stale_version_in_a_replacement_is_409(place: Place):
    stale = await place.create("m")
    await place.label("m", a="b")
    response = await place.client.put(place.of("m"), json=stale)
    assert (response.status_code, response.json()["reason"]) == (409, "Conflict")


async def test_a_replacement_without_a_version_is_422(place: Place):
    await place.create("m")
    response = await place.client.put(place.of("m"), json=isvc("m"))
    assert (response.status_code, response.json()["reason"]) == (422, "Invalid")


async def test_a_replacement_removes_what_it_does_not_name(place: Place):
    current = await place.create("m", labels={"a": "b"})
    del current["metadata"]["labels"]
    after = await ok(place.client.put(place.of("m"), json=current))
    assert "labels" not in after["metadata"]


async def test_creating_twice_is_409_already_exists(place: Place):
    await place.create("m")
    response = await place.client.post(place.path, json=isvc("m"))
    assert (response.status_code, response.json()["reason"]) == (409, "AlreadyExists")
    assert response.json()["message"] == 'inferenceservices.serving.kserve.io "m" already exists'


async def test_creating_while_deleting_says_so(place: Place):
    await place.create("m", finalizers=["example.com/hold"])
    await place.delete("m")
    response = await place.client.post(place.path, json=isvc("m"))
    assert (response.status_code, response.json()["reason"]) == (409, "AlreadyExists")
    assert response.json()["message"].startswith("object is being deleted: ")


async def test_no_finalizer_can_be_added_while_deleting(place: Place):
    await place.create("m", finalizers=["example.com/hold"])
    await place.delete("m")
    body = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    response = await place.client.patch(place.of("m"), json=body, headers=MERGE)
    assert response.status_code == 422


async def test_generate_name_makes_names_that_differ(place: Place):
    body = isvc("x")
    body["metadata"] = {"generateName": "run-"}
    names = {(await ok(place.client.post(place.path, json=body)))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("run-") and len(name) == len("run-") + 5 for name in names)


@pytest.mark.parametrize(
    ("name", "accepted"),
    [("a" * 253, True), ("a" * 254, False), ("Bad_Name", False), ("a.b", True), ("-a", False), ("1", True)],
)
async def test_names_are_dns_subdomains_of_at_most_253(place: Place, name: str, accepted: bool):
    response = await place.client.post(place.path, json=isvc(name))
    assert response.status_code == (201 if accepted else 422), response.text


@pytest.mark.parametrize(
    ("value", "accepted"), [("", True), ("a/b", False), ("a" * 63, True), ("a" * 64, False), ("A_b.c-1", True)]
)
async def test_label_values_are_checked(place: Place, value: str, accepted: bool):
    response = await place.client.post(place.path, json=isvc("m", labels={"example.com/id": value}))
    assert response.status_code == (201 if accepted else 422), response.text


async def test_creating_in_a_namespace_that_does_not_exist_is_404(client):
    body = isvc("m")
    response = await client.post("/apis/serving.kserve.io/v1beta1/namespaces/nowhere/inferenceservices", json=body)
    assert (response.status_code, response.json()["message"]) == (404, 'namespaces "nowhere" not found')


async def test_an_object_of_1_2_mb_is_accepted(place: Place):
    body = isvc("m")
    body["spec"]["predictor"]["padding"] = "x" * 1_200_000
    assert (await place.client.post(place.path, json=body)).status_code == 201


async def test_an_object_of_2_mb_is_refused_by_the_storage(place: Place):
    body = isvc("m")
    body["spec"]["predictor"]["padding"] = "x" * 2_000_000
    response = await place.client.post(place.path, json=body)
    assert response.status_code == 500
    assert "request is too large" in response.json()["message"]


async def test_a_request_above_3_mi_b_is_413(place: Place):
    body = isvc("m")
    body["spec"]["predictor"]["padding"] = "x" * 3_200_000
    response = await place.client.post(place.path, json=body)
    assert (response.status_code, response.json()["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_delete_with_a_foreign_uid_is_409(place: Place):
    await place.create("m")
    body = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    response = await place.client.request("DELETE", place.of("m"), json=body)
    assert response.status_code == 409


async def test_a_collection_is_deleted_by_selector(place: Place):
    await asyncio.gather(place.create("a", labels={"x": "1"}), place.create("b"))
    await ok(place.client.delete(place.path, params={"labelSelector": "x=1"}))
    left = await ok(place.client.get(place.path))
    assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


async def test_a_lease_takes_times_with_exactly_six_digits(place: Place):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
    good = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-11-30T17:32:15.820049Z", "holderIdentity": "a"}}
    created = await ok(place.client.post(path, json=good))
    assert created["spec"]["renewTime"] == "2026-11-30T17:32:15.820049Z"
    bad = {"metadata": {"name": "m"}, "spec": {"renewTime": "2026-11-30T17:32:15Z"}}
    assert (await place.client.post(path, json=bad)).status_code == 400


async def test_a_lease_taken_by_two_has_one_holder(place: Place):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{place.namespace}/leases"
    lease = await ok(place.client.post(path, json={"metadata": {"name": "l"}, "spec": {}}))
    wishes = [lease | {"spec": {"holderIdentity": who}} for who in ("a", "b", "c")]
    answers = await asyncio.gather(*(place.client.put(f"{path}/l", json=wish) for wish in wishes))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]


async def test_a_body_that_is_no_json_is_400(place: Place):
    response = await place.client.post(place.path, content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["reason"]) == (400, "BadRequest")


async def test_an_unknown_path_is_a_plain_404(client):
    response = await client.get("/apis/serving.kserve.io/v1beta1/unknowns")
    assert (response.status_code, response.text) == (404, "404 page not found\n")
    assert response.headers["content-type"].startswith("text/plain")


async def test_a_missing_object_is_a_404_with_a_status(place: Place):
    response = await place.client.get(place.of("nothing"))
    assert (response.status_code, response.json()["reason"]) == (404, "NotFound")
    assert response.json()["details"] == {
        "name": "nothing",
        "group": "serving.kserve.io",
        "kind": "inferenceservices",
    }


async def test_a_method_that_a_resource_does_not_have_is_405(place: Place):
    path = f"/api/v1/namespaces/{place.namespace}/configmaps"
    await ok(place.client.post(path, json={"metadata": {"name": "c"}}))
    response = await place.client.post(f"{path}/c", json={"metadata": {"name": "c"}})
    assert (response.status_code, response.json()["reason"]) == (405, "MethodNotAllowed")


async def test_an_llm_object_shows_the_version_that_was_asked_for(place: Place):
    root, rest = "/apis/serving.kserve.io", f"namespaces/{place.namespace}/llminferenceservices"
    body = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": "m"},
        "spec": {"model": {"uri": "hf://a/b"}},
    }
    await ok(place.client.post(f"{root}/v1alpha1/{rest}", json=body))
    for asked in ("v1alpha1", "v1alpha2"):
        shown = await ok(place.client.get(f"{root}/{asked}/{rest}/m"))
        assert shown["apiVersion"] == f"serving.kserve.io/{asked}"
