"""Complete lists of a cluster, and the patches of `adopt` and `leave`, against an API that others write to."""

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.trace import NoOpTracer

from cli.migration.adoptable import Fate, Finding
from cli.migration.adopting import STRIP_TRIES, Adopter, Scope
from cli.migration.leaving import Leaver
from cli.objects import Objects
from cli.reading import Cluster, Reading
from consumer.kube import KubernetesApi
from consumer.plan import PlanSettings
from consumer.records import PROPERTY, Identity, Record, Stamp, encode_stamp
from consumer.requests.exchange import Exchanger, Instruments
from consumer.writeback import Target, WriteBack, WriteBackForm
from sandbox.cluster import serve
from sandbox.faults import Fault
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import NotFoundError, TransientError, UnreachableError
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey

if TYPE_CHECKING:
    from collections.abc import Callable

NAMING = NamingSettings(cluster_name="prod")
PREFIX = "modelregistry.kubeflow.org/"
ID = f"{PREFIX}inference-service-id"
KUBEFLOW, ODH = f"{PREFIX}finalizer", "modelregistry.opendatahub.io/finalizer"
KSERVE = "inferenceservice.finalizers"
IRIS = ObjectKey(Kind.ISVC, "team-a", "iris")
DECIDING = PlanSettings(Identity("prod", "c-1"), PREFIX, "{namespace}", WriteBack.SAFE, Target(ID, WriteBackForm.LABEL))
LIST = "/apis/serving.kserve.io/v1beta1/inferenceservices"


class Meddler:
    """The API, and somebody who writes right before each of our patches."""

    def __init__(self, real: KubernetesApi) -> None:
        self.real = real
        self.patches = 0
        self.before: Callable[[int], None] = lambda _: None

    async def get(self, key: ObjectKey) -> Any | None:
        return await self.real.get(key)

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        self.patches += 1
        self.before(self.patches)
        await self.real.patch(key, operations)


class World(msgspec.Struct):
    cluster: Any
    objects: Objects
    api: Meddler
    reading: Cluster

    def create(self, name: str = "iris", **metadata: Any) -> str:
        obj = {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"namespace": "team-a", "name": name, **metadata},
            "spec": {"predictor": {}},
        }
        return self.cluster.create(obj)["metadata"]["uid"]

    def metadata(self) -> dict[str, Any] | None:
        found = self.cluster.get("InferenceService", "team-a", "iris")
        return None if found is None else found["metadata"]

    def merge(self, **metadata: Any) -> None:
        self.cluster.patch("InferenceService", ("team-a", "iris"), {"metadata": metadata})

    async def strip(self, uid: str) -> str:
        reading = Reading(self.reading, None, None, None, None, None)
        found = Finding(fate=Fate.STRIP, key=IRIS, uid=uid, what="", finalizers=(KUBEFLOW,))
        return await Adopter(reading, self.objects, Scope(strip=True)).strip(found)


class Registries:
    """One registry that knows these records."""

    def __init__(self, *records: Record) -> None:
        self.records = records
        self.name = "http://mr"

    async def choose(self, _seen: Any) -> None:
        raise TransientError("not needed here")

    async def everywhere(self) -> tuple[Any, ...]:
        return (self,)

    @property
    def place(self) -> Any:
        return self

    @property
    def registry(self) -> Any:
        return self

    async def all_records(self):
        for record in self.records:
            yield record


@pytest.fixture
async def world(tmp_path):
    async with serve() as cluster:
        path = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        http = client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="adopt")
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        api = Meddler(KubernetesApi(exchanger, lambda: float("inf"), NAMING.api_version))
        yield World(cluster, Objects(http, NAMING), api, Cluster(http, api, DECIDING, Registries()))
        await http.aclose()


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_a_list_of_many_pages_is_complete(world):
    uids = {world.create(f"iris-{number:04}", finalizers=[ODH] if number == 777 else []) for number in range(1100)}
    found = await world.objects.of(Kind.ISVC)
    assert ({each.uid for each in found}, len(found)) == (uids, 1100)
    assert [each.key.name for each in found if each.finalizers] == ["iris-0777"]
    assert world.cluster.requests.total("GET", "inferenceservices.serving.kserve.io") == 3


async def test_a_list_whose_pages_have_grown_too_old_begins_anew(world):
    for number in range(501):
        world.create(f"iris-{number:04}")
    gone = Fault(path=LIST, error_rate=1.0, error_status=410, error_body="too old", next_requests=1)
    world.cluster.faults.set(gone)
    assert len(await world.objects.of(Kind.ISVC)) == 501


@pytest.mark.parametrize("body", ["<html>", "[]", '{"data": []}', '{"da'])
async def test_an_answer_that_is_no_config_map_is_no_answer(world, body):
    as_json = {"Content-Type": "application/json"}
    fault = Fault(path=".*/configmaps/.*", error_rate=1.0, error_status=200, error_body=body, error_headers=as_json)
    world.cluster.faults.set(fault)
    with pytest.raises(UnreachableError, match=r"reading ConfigMap kubeflow/params .*: the answer is no ConfigMap"):
        await world.objects.config_map("kubeflow", "params")


async def test_a_list_that_never_comes_to_its_end_is_no_list(world):
    world.cluster.faults.set(Fault(path=LIST, error_rate=1.0, error_status=410, error_body="too old"))
    with pytest.raises(TransientError, match="410"):
        await world.objects.of(Kind.ISVC)


async def test_a_kind_that_is_not_installed_is_no_empty_list(world):
    world.cluster.faults.set(Fault(path=LIST, error_rate=1.0, error_status=404, error_body="404 page not found"))
    with pytest.raises(NotFoundError):
        await world.objects.of(Kind.ISVC)


async def test_what_is_no_list_is_not_taken_for_an_empty_one(world):
    proxied = {"error_headers": {"Content-Type": "application/json"}, "error_status": 200, "error_rate": 1.0}
    world.cluster.faults.set(Fault(path=LIST, error_body="{}", **proxied))
    with pytest.raises(TransientError, match="no list"):
        await world.objects.of(Kind.ISVC)


async def test_what_cannot_be_listed_is_told_with_the_address_of_the_api(world):
    world.cluster.faults.set(Fault(path=LIST, drop_rate=1.0))
    with pytest.raises(TransientError, match=f"listing inferenceservices at {world.cluster.url}: no answer"):
        await world.objects.of(Kind.ISVC)


async def test_an_api_server_without_deployments_has_none(world):
    assert await world.objects.deployments() == []


# --- finalizers -------------------------------------------------------------------------------------------------------


async def test_both_finalizers_go_in_one_patch_and_the_others_keep_their_place(world):
    uid = world.create(finalizers=["a.io/x", KUBEFLOW, KSERVE, ODH])
    assert (await world.strip(uid), world.api.patches) == ("", 1)
    assert world.metadata()["finalizers"] == ["a.io/x", KSERVE]


async def test_an_object_that_is_deleted_and_held_goes(world):
    uid = world.create(finalizers=[ODH])
    world.cluster.delete("InferenceService", "team-a", "iris")
    assert world.metadata()["deletionTimestamp"]
    assert (await world.strip(uid), world.metadata()) == ("", None)


async def test_where_it_is_gone_already_nothing_is_patched(world):
    uid = world.create(finalizers=[KSERVE])
    assert (await world.strip(uid), world.api.patches) == ("", 0)


async def test_when_the_list_moves_under_the_patch_nobody_elses_goes_in_its_stead(world):
    uid = world.create(finalizers=[KUBEFLOW, KSERVE])
    world.api.before = lambda count: world.merge(finalizers=[KSERVE, KUBEFLOW, "a.io/x"]) if count == 1 else None
    assert (await world.strip(uid), world.api.patches) == ("", 2)
    assert world.metadata()["finalizers"] == [KSERVE, "a.io/x"]


async def test_an_object_that_is_re_created_meanwhile_is_left_alone(world):
    uid = world.create(finalizers=[KUBEFLOW])

    def re_create(_: int) -> None:
        world.merge(finalizers=[])
        world.cluster.delete("InferenceService", "team-a", "iris")
        world.create(finalizers=[KUBEFLOW])

    world.api.before = re_create
    assert (await world.strip(uid), world.api.patches) == ("", 1)
    assert world.metadata()["finalizers"] == [KUBEFLOW]


async def test_a_fight_about_the_list_ends_and_is_told(world):
    uid = world.create(finalizers=[KUBEFLOW, KSERVE])
    lists = ([KSERVE, KUBEFLOW], [KUBEFLOW, KSERVE])
    world.api.before = lambda count: world.merge(finalizers=lists[(count - 1) % 2])
    assert "run this again" in await world.strip(uid)
    assert (world.api.patches, KUBEFLOW in world.metadata()["finalizers"]) == (STRIP_TRIES, True)


async def test_an_admission_webhooks_no_is_told_and_ends_nothing_else(world):
    uid = world.create(finalizers=[KUBEFLOW])
    message = 'admission webhook "policy" denied the request: hands off'
    body = msgspec.json.encode({"kind": "Status", "code": 403, "message": message}).decode()
    answer = {"error_headers": {"Content-Type": "application/json"}, "error_status": 403, "error_rate": 1.0}
    world.cluster.faults.set(Fault(method="PATCH", error_body=body, **answer))
    assert "hands off" in await world.strip(uid)


# --- ids --------------------------------------------------------------------------------------------------------------


def vouching(uid: str) -> Record:
    stamp = Stamp("prod", "c-1", "isvc", "team-a", "iris", uid, 1, "10")
    return Record("7", f"iris/{uid}", f"kserve:{uid}/1", "3", "1", properties={PROPERTY: encode_stamp(stamp)})


STOPPED = {"deploymentMode": "Standard", "conditions": [{"type": "Stopped", "status": "True"}]}
SERVING = {"deploymentMode": "Standard", "url": "http://iris", "conditions": [{"type": "Ready", "status": "True"}]}


def state(world: World, status: dict[str, Any]) -> None:
    world.cluster.patch("InferenceService", ("team-a", "iris"), {"status": status}, part="status")


@pytest.fixture
async def idle(world):
    """A stopped object that carries its id, and what was found of it."""
    labels, annotations = {ID: "7", f"{PREFIX}registered-model-id": "1"}, {"serving.kserve.io/stop": "true"}
    uid = world.create(labels=labels, annotations=annotations)
    state(world, STOPPED)
    leaver = Leaver(
        msgspec.structs.replace(world.reading, registries=Registries(vouching(uid))), world.objects, restart_pods=False
    )
    [mark] = (await leaver.find(())).marks
    return leaver, mark


async def test_a_free_id_is_removed_and_its_neighbours_stay(world, idle):
    leaver, mark = idle
    assert (await leaver.remove(mark), world.metadata()["labels"]) == ("", {f"{PREFIX}registered-model-id": "1"})


async def test_what_moved_on_is_judged_again_and_removed_while_that_is_free(world, idle):
    leaver, mark = idle
    world.api.before = lambda count: world.merge(annotations={"x": "y"}) if count == 1 else None
    assert (await leaver.remove(mark), world.api.patches) == ("", 2)
    assert ID not in world.metadata()["labels"]


async def test_what_has_begun_to_serve_meanwhile_keeps_its_id(world, idle):
    leaver, mark = idle
    world.api.before = lambda _: state(world, SERVING)
    assert "would restart its serving pods" in await leaver.remove(mark)
    assert world.metadata()["labels"][ID] == "7"


async def test_an_id_that_somebody_has_changed_meanwhile_is_not_ours(world, idle):
    leaver, mark = idle
    world.api.before = lambda _: world.merge(labels={ID: "8"})
    assert (await leaver.remove(mark), world.metadata()["labels"][ID]) == ("", "8")


async def test_an_object_of_the_same_name_is_left_alone(world, idle):
    leaver, mark = idle

    def re_create(_: int) -> None:
        world.cluster.delete("InferenceService", "team-a", "iris")
        world.create(labels={ID: "7"})

    world.api.before = re_create
    assert (await leaver.remove(mark), world.metadata()["labels"][ID]) == ("", "7")
