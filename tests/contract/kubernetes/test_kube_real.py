"""Facts that only a real server can show: etcd's compaction, the watch cache, changes of definitions, feature gates.

They are why the sandbox does what it does, and a newer Kubernetes that behaves otherwise shows up here.
"""

import re
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.cluster.control_plane import ControlPlane, assets_directory
from tests.contract.kubernetes.kube_target import (
    END,
    MERGE,
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

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def uncached_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server that answers from etcd, not from its watch cache."""
    plane = ControlPlane(tmp_path_factory.mktemp("uncached"), assets_directory(), ("--watch-cache=false",))
    plane.start()
    yield plane
    plane.stop()


@pytest.fixture
async def uncached(uncached_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async for place in _place(uncached_plane, request):
        yield place


@pytest.fixture
async def cached(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async for place in _place(control_plane, request):
        yield place


async def _place(plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    target = Target(plane.url, plane.admin_token, "", True, 60.0, plane.restart_api_server, ca_file=str(plane.ca_file))
    async with target.client() as client:
        await ok(client.post("/api/v1/namespaces", json={"metadata": {"name": name}}))
        yield Place(client, name)


async def _compact(plane: ControlPlane, revision: int) -> None:
    """Make etcd forget everything before a revision."""
    async with httpx.AsyncClient(base_url=plane.etcd_url) as etcd:
        body = {"revision": str(revision), "physical": True}
        await ok(etcd.post("/v3/kv/compaction", json=body))


async def test_f11_initial_events_work_without_the_watch_cache(uncached: Place):
    await uncached.create("m")
    async with watch(uncached.client, uncached.path, **WATCH_LIST) as stream:
        added, bookmark = await stream.take(2)
    assert summary([added]) == [("ADDED", "m")]
    assert bookmark["object"]["metadata"]["annotations"] == {END: "true"}


async def test_f16_compaction_expires_a_watch_without_the_cache(uncached: Place, uncached_plane: ControlPlane):
    created = await uncached.create("m")
    await uncached.label("m", a="b")
    last = await uncached.label("m", a="c")
    await _compact(uncached_plane, version(last))
    async with watch(uncached.client, uncached.path, resourceVersion=version(created), timeoutSeconds=5) as stream:
        event = await stream.next()
    assert event is not None
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert event["object"]["message"] == "The resourceVersion for the provided watch is too old."


async def test_f16_compaction_alone_does_not_expire_a_watch_with_the_cache(cached: Place, control_plane: ControlPlane):
    created = await cached.create("m")
    last = await cached.label("m", a="b")
    await _compact(control_plane, version(last))
    async with watch(cached.client, cached.path, resourceVersion=version(created), timeoutSeconds=5) as stream:
        (event,) = await stream.take(1)
    assert summary([event]) == [("MODIFIED", "m")]


async def test_f19_a_change_of_the_definition_ends_its_watches(cached: Place):
    crd = await create_definition(cached)
    path = served_path(crd, cached.namespace)

    async def served() -> bool:
        return (await cached.client.get(path)).status_code == 200

    await until(served, "the new kind is served")
    since = (await ok(cached.client.get(path)))["metadata"]["resourceVersion"]
    async with watch(cached.client, path, resourceVersion=since) as stream:
        columns = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
        versions = [crd["spec"]["versions"][0] | {"additionalPrinterColumns": columns}]
        await ok(
            cached.client.patch(
                f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}",
                json={"spec": {"versions": versions}},
                headers=MERGE,
            )
        )
        assert await stream.rest() == []

    async def expired() -> bool:
        async with watch(cached.client, path, resourceVersion=since, timeoutSeconds=1) as stream:
            if stream.response.status_code != 200:
                return False
            event = await stream.next()
        return event is not None and event["type"] == "ERROR" and event["object"]["code"] == 410

    await until(expired, "the old version is too old")


async def test_f21_an_expired_token_offers_another_one_for_the_inconsistent_rest(
    uncached: Place, uncached_plane: ControlPlane
):
    for name in ("a", "b", "c"):
        await uncached.create(name)
    first = await ok(uncached.client.get(uncached.path, params={"limit": 1}))
    last = await uncached.create("d")
    await _compact(uncached_plane, version(last))
    response = await uncached.client.get(uncached.path, params={"limit": 10, "continue": first["metadata"]["continue"]})
    assert (response.status_code, response.json()["reason"]) == (410, "Expired")
    offered = response.json()["metadata"]["continue"]
    rest = await ok(uncached.client.get(uncached.path, params={"limit": 10, "continue": offered}))
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]
    assert version(rest) > version(first)


async def test_f22_an_exact_list_of_a_compacted_version_is_410_without_the_cache(
    uncached: Place, uncached_plane: ControlPlane
):
    created = await uncached.create("m")
    last = await uncached.label("m", a="b")
    await _compact(uncached_plane, version(last))
    query = {"resourceVersion": str(version(created)), "resourceVersionMatch": "Exact"}
    response = await uncached.client.get(uncached.path, params=query)
    assert (response.status_code, response.json()["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("gate", "enabled"),
    [
        ("WatchList", "1"),
        ("ConsistentListFromCache", "1"),
        ("ListFromCacheSnapshot", "1"),
        ("ShardedListAndWatch", "0"),
    ],
)
async def test_f30_feature_gates(cached: Place, gate: str, enabled: str):
    metrics = (await cached.client.get("/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith(f'kubernetes_feature_enabled{{name="{gate}",')]
    assert [line.rsplit(" ", 1)[1] for line in lines] == [enabled]
