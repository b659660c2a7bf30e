"""409, 404 and 422 on the patch mean "look again": the actor over the real adapter, against the sandbox."""

import pytest
from msgspec.structs import replace
from opentelemetry.trace import NoOpTracer

import sandbox.cluster
from consumer.act import PATCH_TRIES, Actor
from consumer.freshness import Freshness
from consumer.kube import KubernetesApi
from consumer.observation import Observation, observe_live
from consumer.plan import write_back
from consumer.requests.exchange import Exchanger, Instruments
from sandbox.cluster.auth import ADMIN
from sandbox.faults import Fault
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import TransientError
from shared.naming import NamingSettings
from shared.objects import Kind, Metadata, ObjectKey, ReducedObject
from tests.unit.consumer.worlds import ID, PREFIX, SEEN, SETTINGS

KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
LOOK_AGAIN = {409: "Conflict", 404: "NotFound", 422: "Invalid"}


def isvc():
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "namespace": "team-a",
            "name": "iris",
            "labels": {PREFIX + "registered-model-id": "1"},
            "annotations": {"serving.kserve.io/deploymentMode": "Standard"},
        },
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://b/iris"}}},
    }


class World:
    def __init__(self, cluster, http) -> None:
        self.cluster = cluster
        self.words = []
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        api = KubernetesApi(exchanger, lambda: 60.0, NamingSettings(cluster_name="c").api_version)
        self.api, self.actor = api, Actor(api, SETTINGS, lambda _: None, self.words.append)

    async def seen(self) -> Observation:
        raw = await self.api.get(KEY)
        metadata = raw["metadata"]
        obj = ReducedObject(raw["kind"], Metadata("iris", "team-a", metadata["uid"], metadata["resourceVersion"]))
        freshness = Freshness(1, metadata["resourceVersion"])
        last = Observation(KEY, metadata["uid"], freshness, "v1:d", ("1",), SEEN, obj)
        return observe_live(last, raw, PREFIX)

    async def write(self, seen: Observation):
        return await self.actor.perform(write_back(seen, "17", SETTINGS), seen, None)

    def answer(self, status: int, times: int) -> None:
        body = f'{{"kind":"Status","apiVersion":"v1","reason":"{LOOK_AGAIN[status]}","code":{status}}}'
        fault = Fault(
            method="PATCH",
            path=".*/inferenceservices/iris",
            error_rate=1.0,
            error_status=status,
            error_body=body,
            error_headers={"Content-Type": "application/json"},
            next_requests=times,
        )
        self.cluster.faults.set(fault)

    @property
    def labels(self):
        return self.cluster.get("InferenceService", "team-a", "iris")["metadata"]["labels"]


@pytest.fixture
async def world(tmp_path):
    async with sandbox.cluster.serve(sandbox.cluster.Settings(tokens={"admin": ADMIN})) as cluster:
        cluster.create(isvc())
        path = cluster.write_kubeconfig(tmp_path / "admin.yaml", "admin")
        async with client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="x") as http:
            yield World(cluster, http)


@pytest.mark.parametrize("status", LOOK_AGAIN)
async def test_after_a_look_it_is_written(world, status):
    world.answer(status, PATCH_TRIES - 1)
    outcome = await world.write(await world.seen())
    assert world.cluster.faults.injected["error"] == PATCH_TRIES - 1
    assert outcome.patched
    assert world.labels[ID] == "17"


@pytest.mark.parametrize("status", LOOK_AGAIN)
async def test_after_three_looks_it_waits(world, status):
    world.answer(status, 100)
    outcome = await world.write(await world.seen())
    assert world.cluster.faults.injected["error"] == PATCH_TRIES
    assert (outcome.patched, outcome.deferred, world.words) == (False, True, ["deferred"])


async def test_what_became_ready_meanwhile_is_judged_from_the_look(world):
    seen = await world.seen()
    status = {"deploymentMode": "Standard", "url": "http://x", "conditions": [{"type": "Ready", "status": "True"}]}
    world.cluster.patch("InferenceService", ("team-a", "iris"), {"status": status}, part="status")
    outcome = await world.write(seen)
    assert (outcome.patched, outcome.deferred) == (False, True)
    assert ID not in world.labels


async def test_what_is_gone_is_left_to_its_event(world):
    seen = await world.seen()
    world.cluster.delete("InferenceService", "team-a", "iris")
    outcome = await world.write(seen)
    assert (outcome.patched, outcome.deferred, world.words) == (False, False, ["gone"])


async def test_a_namesake_is_not_written_to(world):
    seen = await world.seen()
    world.cluster.delete("InferenceService", "team-a", "iris")
    world.cluster.create(isvc())
    outcome = await world.write(seen)
    assert (outcome.patched, outcome.deferred, world.words) == (False, False, ["gone"])
    assert ID not in world.labels


async def test_an_object_of_this_name_but_another_uid_in_the_event_is_gone(world):
    seen = replace(await world.seen(), uid="other")
    seen = replace(seen, obj=replace(seen.obj, metadata=replace(seen.obj.metadata, uid="other")))
    assert not (await world.write(seen)).patched
    assert world.words == ["gone"]


async def test_any_other_answer_is_no_reason_to_look(world):
    fault = Fault(method="PATCH", path=".*/iris", error_rate=1.0, error_status=503, next_requests=1)
    world.cluster.faults.set(fault)
    assert isinstance((await world.write(await world.seen())).failure, TransientError)
    assert world.words == []
