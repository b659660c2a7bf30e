"""The demo's whole story on a real API server, under ServiceAccount tokens with exactly the rights of `k8s/base`; what
README tells people to type; and a real API server that dies under running processes."""

import asyncio
import base64
import io
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from opentelemetry.trace import NoOpTracer
from rich.console import Console

from cli.demo.checks import CHECKS, Check, exits
from cli.demo.observer import Observer
from cli.demo.performance import Performance
from cli.demo.screen import Lines
from cli.demo.story import Story
from consumer.kube import KubernetesApi
from consumer.requests.exchange import Exchanger, Instruments
from consumer.writeback import Target, WriteBackForm, patch_operations
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import ConflictError
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.reduce import reduce_object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import NAMESPACE, ROLES, ROOT, Installation, administrator, isvc
from tests.cluster.processes import wait_until
from tests.cluster.remote_kserve import API_VERSIONS
from tests.eventually import eventually

pytestmark = pytest.mark.cluster

STORY_NAMESPACES = ("payments", "search", "vision")  # the story makes them itself
KSERVE_CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "kserve", "name": "inferenceservice-config"},
    "data": {"inferenceService": '{"serviceAnnotationDisallowedList": [], "serviceLabelDisallowedList": []}'},
}
ID = "modelregistry.kubeflow.org/inference-service-id"
VERSION = "modelregistry.kubeflow.org/model-version-id"


def command_of_readme(beginning: str) -> list[str]:
    """The one command in README that begins like this, without the program's name."""
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(beginning)]
    assert len(lines) == 1, lines
    return shlex.split(lines[0])[1:]


def namespace(plane: ControlPlane, name: str) -> None:
    manifest = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)


@pytest.fixture(scope="module")
def applied(control_plane: ControlPlane) -> str:
    """What kubectl said when it applied `k8s/base` with the command of README."""
    for name in ("kubeflow", "kserve"):
        namespace(control_plane, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return control_plane.kubectl(*command_of_readme("kubectl apply"))


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, applied: str) -> Iterator[ControlPlane]:
    """The API server with `k8s/base` and KServe's ConfigMap, from when the rights hold."""
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(KSERVE_CONFIG))
    for role in ROLES:
        with control_plane.client(control_plane.service_account_token(NAMESPACE, f"isvc-sync-{role}")) as account:
            wait_until(lambda account=account: account.get("/api/v1/namespaces/kube-system").is_success, "a right")
    yield control_plane
    # Others see to it that no account may read what is not there.
    control_plane.kubectl("delete", "configmap", "inferenceservice-config", "--namespace", "kserve")


def test_the_command_of_readme_applies_the_base(applied: str):
    lines = applied.splitlines()
    assert all(line.endswith(" serverside-applied") for line in lines)
    assert {f"deployment.apps/isvc-sync-{role}" for role in ROLES} <= {line.split()[0] for line in lines}


# --- the story ---


class Told(msgspec.Struct):
    """How the story ended: the checks by name, and an account of everything for a check that failed."""

    checks: dict[str, Check]
    account: str


@pytest.fixture(scope="module")
def told(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return asyncio.run(tell(installed, tmp_path_factory.mktemp("story")))


async def tell(plane: ControlPlane, directory: Path) -> Told:
    text = io.StringIO()
    screen = Lines(Console(file=text, width=140))
    async with Installation(plane, directory, (*STORY_NAMESPACES, "kserve")) as world:
        observer = Observer(world.kubernetes, world.models, screen.show)
        story = Story(observer, (world.kubernetes, world.models), screen, world.start, pause_s=0.0)
        checks = await Performance(story, observer, screen, world.broker.url, world.logs).checks()
        checks += exits(await world.end())
        screen.close()
        return Told({check.name: check for check in checks}, f"{text.getvalue()}\n{world.log_tails()}")


CHECKED = [*(name for name, _ in CHECKS), *(f"the {role} ended cleanly" for role in ROLES)]


@pytest.mark.parametrize("name", CHECKED)
def test_after_the_story_on_a_real_cluster(told: Told, name: str):
    assert name in told.checks, "\n".join((*(f"{c.name}: {c.detail}" for c in told.checks.values()), told.account))
    assert told.checks[name].passed, f"{told.checks[name].detail}\n{told.account}"


# --- the guards of the write-back ---


class Guarded(msgspec.Struct):
    """An object in the cluster, and the consumer's own adapter, under the consumer's account."""

    admin: httpx.AsyncClient
    api: KubernetesApi
    key: ObjectKey
    path: str

    async def read(self) -> ReducedObject:
        return msgspec.convert(reduce_object(await self.api.get(self.key)), ReducedObject)

    async def label(self) -> str | None:
        raw: dict[str, Any] = await self.api.get(self.key) or {}
        label: str | None = raw["metadata"]["labels"].get(ID)
        return label

    async def change(self) -> None:
        """Somebody else writes to the object."""
        merge = {"Content-Type": "application/merge-patch+json"}
        body = {"metadata": {"labels": {"owner": "somebody"}}}
        (await self.admin.patch(self.path, json=body, headers=merge)).raise_for_status()


@pytest.fixture
async def guarded(installed: ControlPlane, tmp_path: Path) -> AsyncIterator[Guarded]:
    namespace(installed, "guards")
    token = installed.service_account_token(NAMESPACE, "isvc-sync-consumer")
    kubeconfig = installed.write_kubeconfig(tmp_path / "kubeconfig", token)
    collection = f"/apis/{API_VERSIONS[Kind.ISVC]}/namespaces/guards/{Kind.ISVC.plural}"
    http = client(load_cluster(ClusterSettings(kubeconfig=str(kubeconfig)), {}), use="control", role="consumer")
    async with administrator(installed) as admin, http:
        body = isvc("guards", "iris", registered_model_id="1")
        (await admin.post(collection, json=body)).raise_for_status()
        api = KubernetesApi(
            Exchanger(http, Instruments(NoOpTracer(), lambda *_: None)), lambda: float("inf"), API_VERSIONS.__getitem__
        )
        yield Guarded(admin, api, ObjectKey(Kind.ISVC, "guards", "iris"), f"{collection}/iris")
        (await admin.delete(f"{collection}/iris")).raise_for_status()


def operations(obj: ReducedObject, form: WriteBackForm, *, tested: str | None) -> list[dict[str, Any]]:
    return patch_operations(obj, Target(ID, form), "7", test_resource_version=tested)


async def test_a_write_back_that_tests_an_older_resource_version_is_a_conflict(guarded: Guarded):
    seen = await guarded.read()
    await guarded.change()
    patch = operations(seen, WriteBackForm.LABEL, tested=seen.metadata.resource_version)
    with pytest.raises(ConflictError):
        await guarded.api.patch(guarded.key, patch)
    assert await guarded.label() is None


async def test_a_write_back_for_an_earlier_life_of_the_object_is_a_conflict(guarded: Guarded):
    seen = await guarded.read()
    (await guarded.admin.delete(guarded.path)).raise_for_status()
    again = isvc("guards", "iris", registered_model_id="1")
    (await guarded.admin.post(guarded.path.rpartition("/")[0], json=again)).raise_for_status()
    with pytest.raises(ConflictError):
        await guarded.api.patch(guarded.key, operations(seen, WriteBackForm.LABEL, tested=None))
    assert await guarded.label() is None


async def test_a_free_write_back_passes_whatever_others_have_written_meanwhile(guarded: Guarded):
    seen = await guarded.read()
    await guarded.change()
    await guarded.api.patch(guarded.key, operations(seen, WriteBackForm.LABEL, tested=None))
    assert await guarded.label() == "7"


async def test_the_first_annotation_of_an_object_is_written_only_to_what_was_seen(guarded: Guarded):
    seen = await guarded.read()
    await guarded.change()
    with pytest.raises(ConflictError):
        await guarded.api.patch(guarded.key, operations(seen, WriteBackForm.ANNOTATION, tested=None))
    await guarded.api.patch(guarded.key, operations(await guarded.read(), WriteBackForm.ANNOTATION, tested=None))
    assert (await guarded.api.get(guarded.key))["metadata"]["annotations"] == {ID: "7"}


# --- while producer and consumer run ---


@pytest.fixture
async def world(installed: ControlPlane, tmp_path: Path) -> AsyncIterator[Installation]:
    """Producer and consumer run; model 1 with the versions 2 and 3 is registered; the namespace is `running`."""
    namespace(installed, "running")
    async with Installation(installed, tmp_path, ("running",)) as world:
        world.registry.seed(
            registered_models=[{"id": "1", "name": "iris"}],
            model_versions=[{"id": number, "name": f"v{number}", "registeredModelId": "1"} for number in ("2", "3")],
        )
        await asyncio.gather(*(world.start(role) for role in ROLES))
        yield world
        print(world.log_tails())  # noqa: T201 - pytest shows it with a test that failed
        assert await world.end() == dict.fromkeys(ROLES, 0)


async def recorded(world: Installation, uid: str, **fields: str) -> None:
    await eventually(lambda: fields.items() <= world.record(uid).items(), f"the record says {fields}")


async def test_the_label_command_of_readme_ends_in_a_record_of_a_live_object(world: Installation, tmp_path: Path):
    uid = await world.create("running", "iris")
    await eventually(lambda: world.is_serving("running", "iris"), "it serves")
    assert world.record(uid) == {}
    kubeconfig = world.plane.write_kubeconfig(tmp_path / "person", world.plane.admin_token, "running")
    command = command_of_readme("kubectl label")
    await asyncio.to_thread(world.plane.kubectl, *command, kubeconfig=kubeconfig)
    await recorded(world, uid, registeredModelId="1", modelVersionId="2", desiredState="DEPLOYED", name=f"iris/{uid}")


async def test_a_change_after_the_api_server_was_killed_and_came_back_is_recorded(world: Installation):
    uid = await world.create("running", "iris", registered_model_id="1", model_version_id="2")
    await recorded(world, uid, modelVersionId="2")
    world.plane.kill_api_server()
    await asyncio.to_thread(world.plane.restart_api_server)
    await watch_was_interrupted(world)
    key = ObjectKey(Kind.ISVC, "running", "iris")
    await world.kubernetes.patch(key, {"metadata": {"labels": {VERSION: "3"}}})
    await recorded(world, uid, modelVersionId="3", desiredState="DEPLOYED")


async def test_objects_that_go_while_the_api_server_restarts_end_undeployed(world: Installation):
    names = ("unseen", "at-once")
    uids = {name: await world.create("running", name, registered_model_id="1") for name in names}
    for uid in uids.values():
        await recorded(world, uid, desiredState="DEPLOYED")
    world.plane.kill_api_server()
    await vanish(world.plane, "running/unseen")  # no watch will ever tell of it
    deleting = asyncio.create_task(delete_as_soon_as_possible(world.plane, "running/at-once"))
    await asyncio.to_thread(world.plane.restart_api_server)
    await deleting
    await watch_was_interrupted(world)
    for uid in uids.values():
        await recorded(world, uid, desiredState="UNDEPLOYED")


async def watch_was_interrupted(world: Installation) -> None:
    log = world.children["producer"].log
    await eventually(lambda: "the watch was interrupted" in log.read_text(), "the producer says that it lost its watch")


async def vanish(plane: ControlPlane, name: str) -> None:
    """Take an InferenceService out of etcd."""
    key = base64.b64encode(f"/registry/serving.kserve.io/{Kind.ISVC.plural}/{name}".encode()).decode()
    async with httpx.AsyncClient(base_url=plane.etcd_url, trust_env=False) as etcd:
        answer = (await etcd.post("/v3/kv/deleterange", json={"key": key})).raise_for_status()
    assert answer.json()["deleted"] == "1"


async def delete_as_soon_as_possible(plane: ControlPlane, name: str) -> None:
    """Ask until the API server takes the DELETE, which is before it says that it is ready."""
    space, _, short = name.partition("/")
    path = f"/apis/{API_VERSIONS[Kind.ISVC]}/namespaces/{space}/{Kind.ISVC.plural}/{short}"

    async def deleted(admin: httpx.AsyncClient) -> bool:
        try:
            return (await admin.delete(path)).is_success
        except httpx.TransportError:
            return False  # it does not listen yet

    async with administrator(plane) as admin:
        await eventually(lambda: deleted(admin), f"{name} is deleted", within_s=60)
