"""The running sandbox: what it offers beyond a real server (switches, Python, captures), over real sockets."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

from sandbox.cluster import ClusterSandbox, Settings, serve
from sandbox.cluster.auth import ADMIN
from sandbox.cluster.play import CaptureError, read
from sandbox.cluster.status import ApiError
from sandbox.cluster.store import History
from sandbox.faults import Fault
from tests.eventually import eventually

CAPTURES = Path(__file__).parents[2] / "captures"
ISVCS = "/apis/serving.kserve.io/v1beta1/inferenceservices"
WATCH_LIST = {
    "watch": "1",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def isvc(name: str, namespace: str = "ns", **metadata) -> dict:
    model = {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/v1"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"predictor": {"model": model}},
    }


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterSandbox]:
    async with serve() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: ClusterSandbox) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=cluster.url, timeout=20) as client:
        yield client


async def _events(client: httpx.AsyncClient, path: str = ISVCS, **query: str) -> AsyncIterator[dict]:
    async with client.stream("GET", path, params={"watch": "1", **query}) as response:
        async for line in response.aiter_lines():
            yield json.loads(line)


async def _all(client: httpx.AsyncClient, number: int, path: str = ISVCS, **query: str) -> list[dict]:
    """The first events of a watch."""
    found: list[dict] = []
    async with asyncio.timeout(20):
        async for event in _events(client, path, **query):
            found.append(event)
            if len(found) == number:
                break
    return found


# --- Python ---


async def test_objects_are_written_from_python_under_the_same_rules(cluster: ClusterSandbox):
    created = cluster.create(isvc("m"))
    assert created["metadata"]["generation"] == 1
    patched = cluster.patch("InferenceService", ("ns", "m"), {"spec": {"x": 1}})
    assert patched["metadata"]["generation"] == 2
    cluster.patch("InferenceService", ("ns", "m"), {"status": {"url": "u"}}, part="status")
    found = cluster.get("InferenceService", "ns", "m")
    assert found is not None
    assert found["status"] == {"url": "u"}
    cluster.delete("InferenceService", "ns", "m")
    assert cluster.list("InferenceService") == []
    with pytest.raises(ApiError, match="must consist of lower case"):
        cluster.create(isvc("Bad_Name"))


async def test_the_kubeconfig_names_server_and_token(cluster: ClusterSandbox, tmp_path: Path):
    path = cluster.write_kubeconfig(tmp_path / "kubeconfig", token="secret")
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == cluster.url
    assert config["users"][0]["user"] == {"token": "secret"}
    assert path.stat().st_mode & 0o777 == 0o600


async def test_without_tokens_nobody_is_asked_for_one(client: httpx.AsyncClient):
    assert (await client.get(ISVCS)).status_code == 200


async def test_with_tokens_everybody_is():
    async with serve(Settings(tokens={"t": ADMIN})) as cluster, httpx.AsyncClient(base_url=cluster.url) as client:
        assert (await client.get(ISVCS)).status_code == 401
        assert (await client.get(ISVCS, headers={"Authorization": "Bearer t"})).status_code == 200


# --- switches ---


async def test_watch_lists_can_be_refused_as_with_the_gate_off(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.api.watch_list = "gate-off"
    answer = await client.get(ISVCS, params=WATCH_LIST)
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert "sendInitialEvents is forbidden" in answer.json()["message"]


async def test_watch_lists_can_be_refused_as_with_an_old_etcd(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.api.watch_list = "old-etcd"
    answer = await client.get(ISVCS, params=WATCH_LIST)
    assert answer.status_code == 200
    event = json.loads(answer.text)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    assert "RequestWatchProgress is disabled" in event["object"]["message"]


async def test_a_bounded_history_expires_watches_and_pages():
    settings = Settings(history=History(events_max=3))
    async with serve(settings) as cluster, httpx.AsyncClient(base_url=cluster.url) as client:
        old = cluster.create(isvc("a"))["metadata"]["resourceVersion"]
        cluster.create(isvc("b"))
        page = (await client.get(ISVCS, params={"limit": 1})).json()
        for name in "cdef":
            cluster.create(isvc(name))
        (event,) = await _all(client, 1, resourceVersion=old)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        token = page["metadata"]["continue"]
        answer = await client.get(ISVCS, params={"limit": 10, "continue": token})
        assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")
        rest = await client.get(ISVCS, params={"limit": 10, "continue": answer.json()["metadata"]["continue"]})
        assert [item["metadata"]["name"] for item in rest.json()["items"]] == ["b", "c", "d", "e", "f"]


async def test_an_expired_history_leaves_open_watches_alone(cluster: ClusterSandbox, client: httpx.AsyncClient):
    old = cluster.create(isvc("a"))["metadata"]["resourceVersion"]
    cluster.create(isvc("b"))
    async with asyncio.timeout(20), client.stream("GET", ISVCS, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        assert [json.loads(await anext(lines))["object"]["metadata"]["name"] for _ in "ab"] == ["a", "b"]
        cluster.expire_history()
        cluster.create(isvc("c"))
        assert json.loads(await anext(lines))["object"]["metadata"]["name"] == "c"
    (event,) = await _all(client, 1, resourceVersion=old)
    assert event["object"]["code"] == 410


async def test_open_watches_can_be_disturbed(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.create(isvc("a"))
    async with asyncio.timeout(20), client.stream("GET", ISVCS, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        (watch,) = cluster.api.watches
        await watch.send(b"no json\n")
        assert await anext(lines) == "no json"
        await watch.send(b'{"type":"ADD')
        watch.end()
        assert [line async for line in lines] == ['{"type":"ADD']


async def test_an_aborted_watch_is_a_broken_answer(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.create(isvc("a"))
    async with asyncio.timeout(20), client.stream("GET", ISVCS, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        (watch,) = cluster.api.watches
        watch.abort()
        with pytest.raises(httpx.TransportError):
            await anext(lines)


async def test_a_reader_that_is_gone_when_its_events_come_is_no_error(cluster: ClusterSandbox, caplog):
    async with httpx.AsyncClient(base_url=cluster.url) as client, client.stream("GET", ISVCS, params={"watch": "1"}):
        [watch] = cluster.api.watches
        cluster.create(isvc("a"))  # wakes the watch, which finds its connection closing
        watch.abort()
        await eventually(lambda: not cluster.api.watches, "its watch has ended")
    assert caplog.records == []


async def test_a_silenced_watch_sends_nothing_more(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.create(isvc("a"))
    async with client.stream("GET", ISVCS, params={"watch": "1", "timeoutSeconds": "1"}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        (watch,) = cluster.api.watches
        watch.silence()
        cluster.create(isvc("b"))
        assert [line async for line in lines] == []


async def test_faults_are_set_from_python_and_counted(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.faults.set(Fault(path=".*inferenceservices", outage=True, next_requests=1))
    assert (await client.get(ISVCS)).status_code == 503
    assert (await client.get(ISVCS)).status_code == 200
    assert cluster.faults.injected["outage"] == 1


async def test_requests_are_counted_by_resource(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.create(isvc("a"))
    one = "/apis/serving.kserve.io/v1beta1/namespaces/ns/inferenceservices/a"
    headers = {"Content-Type": "application/merge-patch+json"}
    await client.patch(one, json={"metadata": {"labels": {"a": "b"}}}, headers=headers)
    await client.get(ISVCS)
    assert cluster.requests.total("PATCH", "inferenceservices.serving.kserve.io/{name}".replace("{", r"\{")) == 1
    assert cluster.requests.total("GET", "inferenceservices.serving.kserve.io") == 1


# --- the controllers around ---


async def test_a_deleted_namespace_goes_when_its_last_object_is_released(cluster: ClusterSandbox):
    cluster.create(isvc("held", finalizers=["example.com/hold"]))
    cluster.create(isvc("free"))
    cluster.delete("Namespace", "", "ns")
    assert [obj["metadata"]["name"] for obj in cluster.list("InferenceService")] == ["held"]
    with pytest.raises(ApiError, match="because it is being terminated"):
        cluster.create(isvc("late"))
    cluster.patch("InferenceService", ("ns", "held"), {"metadata": {"finalizers": None}})
    assert cluster.get("Namespace", "", "ns") is None


async def test_protected_namespaces_stay(cluster: ClusterSandbox):
    with pytest.raises(ApiError, match="may not be deleted"):
        cluster.delete("Namespace", "", "kube-system")


async def test_foreground_deletion_ends_by_itself(cluster: ClusterSandbox, client: httpx.AsyncClient):
    cluster.create(isvc("m"))
    one = "/apis/serving.kserve.io/v1beta1/namespaces/ns/inferenceservices/m"
    answer = await client.request("DELETE", one, json={"propagationPolicy": "Foreground"})
    assert answer.json()["metadata"]["finalizers"] == ["foregroundDeletion"]
    await eventually(lambda: cluster.get("InferenceService", "ns", "m") is None)


async def test_the_played_kserve_makes_an_object_ready_and_lets_it_go():
    settings = Settings(kserve=True, kserve_pace=0)
    async with serve(settings) as cluster, httpx.AsyncClient(base_url=cluster.url) as client:
        since = cluster.create(isvc("m"))["metadata"]["resourceVersion"]
        events = await _all(client, 7, resourceVersion=since)
        status = events[-1]["object"]["status"]
        assert (status["url"], status["modelStatus"]["states"]["activeModelState"]) == (
            "http://m-ns.example.com",
            "Loaded",
        )
        since = events[-1]["object"]["metadata"]["resourceVersion"]
        cluster.delete("InferenceService", "ns", "m")
        assert [event["type"] for event in await _all(client, 2, resourceVersion=since)] == ["MODIFIED", "DELETED"]


async def test_a_busy_object_still_becomes_ready():
    async with serve(Settings(kserve=True, kserve_pace=0.01)) as cluster:
        cluster.create(isvc("m"))
        async with asyncio.timeout(20):
            for number in range(100_000):
                status = cluster.patch("InferenceService", ("ns", "m"), {"status": {"n": number}}, part="status")
                if status["status"].get("url"):
                    break
                await asyncio.sleep(0.001)


async def test_the_disallowed_list_of_kserves_configuration_is_read():
    async with serve(Settings(kserve=True, kserve_pace=0)) as cluster:
        listed = json.dumps({"serviceAnnotationDisallowedList": ["example.com/id"]})
        config = {"kind": "ConfigMap", "metadata": {"name": "inferenceservice-config", "namespace": "kserve"}}
        cluster.create(config | {"data": {"inferenceService": listed}})
        uid = cluster.create(isvc("m"))["metadata"]["uid"]

        await eventually(lambda: uid in cluster.controller.deployed and cluster.controller.deployed[uid].step == 6)
        cluster.patch("InferenceService", ("ns", "m"), {"metadata": {"annotations": {"example.com/id": "1"}}})
        assert cluster.controller._work == {}
        cluster.patch("InferenceService", ("ns", "m"), {"metadata": {"annotations": {"example.com/other": "1"}}})
        assert len(cluster.controller._work) == 1


# --- captures ---


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.jsonl")), ids=lambda path: path.stem)
async def test_watchers_of_a_played_capture_see_its_events(
    path: Path, cluster: ClusterSandbox, client: httpx.AsyncClient
):
    recorded = [line.event for line in read(path) if line.event is not None and line.event.type != "BOOKMARK"]
    llm = recorded[0].object["kind"] == "LLMInferenceService"
    resource = "/apis/serving.kserve.io/v1alpha2/llminferenceservices" if llm else ISVCS
    since = cluster.store.version
    written = await cluster.play(path)
    seen = await _all(client, written, resource, resourceVersion=str(since))
    assert written > 0
    # A second synthetic initial state repeats what is known already, and writes nothing.
    kept = [(event["type"], event["object"]) for event in seen]
    assert kept == _without_repetition([(event.type, event.object) for event in recorded])


def _without_repetition(events: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    known: dict[str, dict] = {}
    kept = []
    for type_, obj in events:
        uid = obj["metadata"]["uid"]
        if known.get(uid) == obj and type_ == "ADDED":
            continue
        known[uid] = obj
        kept.append((type_, obj))
    return kept


async def test_a_second_capture_is_numbered_anew_in_its_order(cluster: ClusterSandbox):
    await cluster.play(CAPTURES / "modelmesh.jsonl")
    before = cluster.store.version
    written = await cluster.play(CAPTURES / "create-ready-delete.jsonl")
    assert cluster.store.version >= before + written


async def test_a_capture_is_played_at_its_pace(cluster: ClusterSandbox):
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    await cluster.play(CAPTURES / "create-ready-delete.jsonl", pace=0.02)
    assert 0.1 < loop.time() - started_s < 5


def test_a_file_that_is_no_capture_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"story": "s"}\n{"event": {"type": "WHAT", "object": {}}}\n')
    with pytest.raises(CaptureError, match=r"x\.jsonl, line 2: Invalid enum value 'WHAT'"):
        read(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no watch event"),
        ('{"a": 1}\n', "holds no watch event"),
        (
            '{"event": {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"resourceVersion": "1"}}}}\n',
            "line 1: an event of 'Pod'",
        ),
    ],
    ids=["empty", "other-json", "other-kind"],
)
def test_a_file_that_cannot_be_played_is_told_before_anything_starts(tmp_path, text, told):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(CaptureError, match=re.escape(told)):
        read(path)


async def test_a_limit_below_one_is_no_limit():
    async with serve() as cluster, httpx.AsyncClient(base_url=cluster.url) as client:
        cluster.create(isvc("m"))
        answer = await client.get("/apis/serving.kserve.io/v1beta1/inferenceservices", params={"limit": "-1"})
        assert len(answer.json()["items"]) == 1
