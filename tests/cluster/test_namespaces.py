"""`k8s/namespaces` on a real API server: isvc-sync in two namespaces, without rights in any other."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from shared.objects import Kind, ObjectKey
from tests.cluster.control_plane import ControlPlane, assets_directory
from tests.cluster.installation import NAMESPACE, ROOT, Installation
from tests.eventually import eventually

pytestmark = pytest.mark.cluster

OURS, OTHERS = ("team-a", "team-b"), ("team-c",)
API = "/apis/serving.kserve.io/v1beta1"
ISVCS = f"{API}/namespaces/{{}}/{Kind.ISVC.plural}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: on the shared one, the base's rights are bound everywhere."""
    plane = ControlPlane(tmp_path_factory.mktemp("namespaces"), assets_directory())
    plane.start()
    for name in ("kubeflow", "kserve", *OURS, *OTHERS):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
    plane.kubectl("apply", "--server-side", "--kustomize", str(ROOT / "k8s/namespaces"))
    yield plane
    plane.stop()


def status(client: httpx.Client, path: str) -> int:
    return client.get(path).status_code


@pytest.mark.parametrize(("role", "listed"), [("producer", 200), ("consumer", 403)])
async def test_each_account_has_its_rights_in_these_namespaces_only(installed, role, listed):
    with installed.client(installed.service_account_token(NAMESPACE, f"isvc-sync-{role}")) as client:
        # The authorizer learns of a new binding within a moment.
        await eventually(lambda: status(client, ISVCS.format("team-a") + "/none") == 404)
        assert {name: status(client, ISVCS.format(name)) for name in OURS} == dict.fromkeys(OURS, listed)
        assert [status(client, ISVCS.format(name) + "/none") for name in OTHERS] == [403]
        assert status(client, f"{API}/{Kind.ISVC.plural}") == 403
        assert status(client, "/api/v1/namespaces/kube-system") == 200
        assert status(client, "/api/v1/namespaces/team-c") == 403


async def test_what_is_deployed_in_these_namespaces_is_recorded_and_nothing_else(
    installed: ControlPlane, tmp_path: Path
):
    async with Installation(installed, tmp_path, (*OURS, *OTHERS)) as world:
        model = await world.models.register("iris")
        await world.start("producer")
        await world.start("consumer")
        uids = {name: await world.create(name, "iris", registered_model_id=model.id) for name in (*OURS, *OTHERS)}
        await eventually(lambda: all(world.record(uids[name]) for name in OURS), within_s=20)
        await world.kubernetes.delete(ObjectKey(Kind.ISVC, "team-b", "iris"))
        await eventually(lambda: world.record(uids["team-b"])["desiredState"] == "UNDEPLOYED", within_s=20)
        assert world.record(uids["team-a"])["desiredState"] == "DEPLOYED"
        assert world.record(uids["team-c"]) == {}
