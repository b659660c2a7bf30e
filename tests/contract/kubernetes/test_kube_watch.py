"""Facts about watches: order, initial state, bookmarks, ends, expiry (docs/kubernetes-facts.md)."""

import asyncio
import socket
import time

import httpx
import pytest

from tests.contract.kubernetes.kube_target import (
    END,
    ISVC,
    WATCH_LIST,
    Place,
    Target,
    create_definition,
    ok,
    served_path,
    summary,
    until,
    version,
    watch,
)


async def test_f06_an_object_that_leaves_a_selector_is_deleted_for_that_watch(place: Place):
    created = await place.create("m", labels={"team": "blue"})
    query = {"labelSelector": "team=blue", "resourceVersion": version(created)}
    async with watch(place.client, place.path, **query) as stream:
        after = await place.label("m", team="red")
        (event,) = await stream.take(1)
    assert event["type"] == "DELETED"
    assert version(event["object"]) == version(after)
    assert "deletionTimestamp" not in event["object"]["metadata"]


async def test_an_object_that_enters_a_selector_is_added_for_that_watch(place: Place):
    created = await place.create("m", labels={"team": "red"})
    query = {"labelSelector": "team=blue", "resourceVersion": version(created)}
    async with watch(place.client, place.path, **query) as stream:
        await place.label("m", other="1")
        await place.label("m", team="blue")
        await place.label("m", other="2")
        events = await stream.take(2)
    assert summary(events) == [("ADDED", "m"), ("MODIFIED", "m")]


async def test_f07_a_watch_replays_what_happened_since_a_list_in_order(place: Place):
    since = await place.list_version()
    await place.create("b")
    await place.create("a")
    await place.label("b", x="1")
    await place.delete("a")
    async with watch(place.client, place.path, resourceVersion=since) as stream:
        events = await stream.take(4)
    assert summary(events) == [("ADDED", "b"), ("ADDED", "a"), ("MODIFIED", "b"), ("DELETED", "a")]
    versions = [version(event["object"]) for event in events]
    assert versions == sorted(set(versions))


async def test_f08_the_initial_state_ends_with_a_bare_bookmark(place: Place):
    await place.create("m")
    async with watch(place.client, place.path, **WATCH_LIST) as stream:
        added, bookmark = await stream.take(2)
    assert summary([added]) == [("ADDED", "m")]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"] == {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "annotations": {END: "true"},
            "resourceVersion": bookmark["object"]["metadata"]["resourceVersion"],
        },
    }
    assert version(bookmark["object"]) >= version(added["object"])


async def test_the_stream_goes_on_after_the_initial_state(place: Place):
    await place.create("m")
    async with watch(place.client, place.path, **WATCH_LIST) as stream:
        await stream.take(2)
        await place.label("m", a="b")
        (event,) = await stream.take(1)
    assert summary([event]) == [("MODIFIED", "m")]


@pytest.mark.parametrize(
    "query",
    [WATCH_LIST, {"allowWatchBookmarks": "true"}, {"allowWatchBookmarks": "true", "resourceVersion": "0"}],
    ids=["WatchList", "no version", "version 0"],
)
async def test_f09_initial_objects_come_in_name_order_and_end_with_a_bookmark(place: Place, query: dict):
    for name in ("c", "a", "b"):
        await place.create(name)
    async with watch(place.client, place.path, **query) as stream:
        events = await stream.take(4)
    assert summary(events[:3]) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    versions = [version(event["object"]) for event in events[:3]]
    assert versions != sorted(versions)
    assert events[3]["object"]["metadata"]["annotations"] == {END: "true"}


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["no version", "version 0"])
async def test_f09_without_bookmarks_nothing_marks_the_end_of_the_initial_state(place: Place, query: dict):
    await place.create("m")
    async with watch(place.client, place.path, timeoutSeconds=1, **query) as stream:
        assert summary(await stream.rest()) == [("ADDED", "m")]


async def test_f10_initial_events_without_not_older_than_are_422(place: Place):
    async with watch(place.client, place.path, sendInitialEvents="true") as stream:
        assert stream.response.status_code == 422
        assert stream.response.json()["reason"] == "Invalid"


async def test_f12_bookmarks_come_each_interval_and_before_the_end_and_move_with_other_writes(
    place: Place, target: Target
):
    timeout_s = 65 if target.is_real else 2
    created = await place.create("m")
    started_s, bookmarks = time.monotonic(), []
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": timeout_s, "resourceVersion": version(created)}
    async with watch(place.client, place.path, **query) as stream:
        await place.label("m", a="b")
        assert summary(await stream.take(1)) == [("MODIFIED", "m")]
        path = f"/api/v1/namespaces/{place.namespace}/configmaps"
        other = await ok(place.client.post(path, json={"metadata": {"name": "other"}}))
        # A consistent list makes the real server's cache ask etcd how far it is; without one a bookmark repeats the
        # version of the kind's last event, however much else was written.
        await ok(place.client.get(place.path))
        while (event := await stream.next()) is not None:
            assert event["type"] == "BOOKMARK"
            assert version(event["object"]) >= version(other)
            bookmarks.append(time.monotonic() - started_s)
    regular, *last = bookmarks
    assert regular == pytest.approx(target.bookmark_interval_s, abs=2.5 if target.is_real else 0.3)
    assert 1 <= len(last) <= 2
    assert all(timeout_s - 3 <= at_s <= timeout_s + 0.5 for at_s in last)


async def test_f12_a_short_watch_gets_no_bookmark(place: Place, target: Target):
    if not target.is_real:
        pytest.skip("the sandbox's interval is shortened here: see tests/unit/sandbox/test_cluster_store.py")
    created = await place.create("m")
    query = {"allowWatchBookmarks": "true", "timeoutSeconds": 5, "resourceVersion": version(created)}
    async with watch(place.client, place.path, **query) as stream:
        assert await stream.rest() == []


async def test_f13_timeout_seconds_ends_a_watch_cleanly(place: Place):
    created = await place.create("m")
    started_s = time.monotonic()
    async with watch(place.client, place.path, timeoutSeconds=1, resourceVersion=version(created)) as stream:
        assert await stream.rest() == []
    assert 0.9 <= time.monotonic() - started_s < 3


async def test_f14_a_reader_that_does_not_read_is_dropped_and_can_resume(place: Place, target: Target):
    created = await place.create("m")
    last, updates, padding = version(created), 600, "x" * 40_000
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)]
    async with target.client(socket_options=small) as reader:
        async with watch(reader, place.path, resourceVersion=last) as stream:
            for number in range(updates):
                await place.merge("m", {"spec": {"padding": f"{number}{padding}"}})
            before = await stream.rest()
        assert 0 < len(before) < updates
        assert {event["type"] for event in before} == {"MODIFIED"}
        async with watch(reader, place.path, resourceVersion=version(before[-1]["object"])) as stream:
            after = await stream.take(updates - len(before))
    numbers = [event["object"]["metadata"]["generation"] for event in before + after]
    assert numbers == list(range(2, updates + 2))


async def test_f15_after_a_restart_the_last_version_is_too_old(place: Place, target: Target):
    created = await place.create("m")
    await asyncio.to_thread(target.restart) if target.is_real else target.restart()

    async def served() -> bool:
        try:
            return (await place.client.get(place.path)).status_code == 200
        except httpx.TransportError:
            return False

    await until(served, "the server answers again")
    async with watch(place.client, place.path, resourceVersion=version(created)) as stream:
        assert stream.response.status_code == 200
        (event, *rest) = await stream.rest()
    assert rest == []
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {version(created)} (")


async def test_f17_a_watch_from_the_future_is_silent(place: Place):
    future = int(await place.list_version()) + 100_000
    async with watch(place.client, place.path, resourceVersion=future, timeoutSeconds=1) as stream:
        assert stream.response.status_code == 200
        await place.create("m")
        assert await stream.rest() == []


async def test_f18_a_garbage_version_in_a_watch_is_500(place: Place):
    async with watch(place.client, place.path, resourceVersion="garbage") as stream:
        assert stream.response.status_code == 500


async def test_f18_version_1_is_too_old(place: Place):
    async with watch(place.client, place.path, resourceVersion="1") as stream:
        assert stream.response.status_code == 200
        (event,) = await stream.rest()
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_f20_deleting_a_definition_is_seen_as_deletes_and_an_end(place: Place):
    crd = await create_definition(place)
    path = served_path(crd, place.namespace)
    body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Gadget"}

    async def created() -> bool:
        held = body | {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        answers = [await place.client.post(path, json=one) for one in (held, body | {"metadata": {"name": "free"}})]
        return all(answer.status_code in {201, 409} for answer in answers)

    await until(created, "objects of the new kind are created")
    since = (await ok(place.client.get(path)))["metadata"]["resourceVersion"]
    async with watch(place.client, path, resourceVersion=since) as stream:
        await ok(
            place.client.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}")
        )
        seen = summary(await stream.take(2))
        assert sorted(seen) == [("DELETED", "free"), ("MODIFIED", "held")]
        await ok(
            place.client.patch(
                f"{path}/held",
                json={"metadata": {"finalizers": None}},
                headers={"Content-Type": "application/merge-patch+json"},
            )
        )
        assert summary(await stream.rest()) == [("DELETED", "held")]


async def test_a_watch_of_all_namespaces_sees_all(place: Place):
    created = await place.create("m")
    async with watch(place.client, f"{ISVC}/inferenceservices", resourceVersion=version(created)) as stream:
        await place.label("m", a="b")
        (event,) = await stream.take(1)
    assert event["object"]["metadata"]["namespace"] == place.namespace


async def test_a_recreated_object_is_deleted_and_added_with_another_uid(place: Place):
    created = await place.create("m")
    async with watch(place.client, place.path, resourceVersion=version(created)) as stream:
        await place.delete("m")
        await place.create("m")
        gone, back = await stream.take(2)
    assert summary([gone, back]) == [("DELETED", "m"), ("ADDED", "m")]
    assert gone["object"]["metadata"]["uid"] != back["object"]["metadata"]["uid"]


async def test_resource_version_match_without_initial_events_is_422(place: Place):
    query = {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}
    async with watch(place.client, place.path, **query) as stream:
        assert stream.response.status_code == 422
