"""What `isvc-sync adopt` asks of a real API server, with exactly the rights that `docs/adoption.md` names."""

import contextlib
import json
import math

import pytest
from opentelemetry.trace import NoOpTracer

from cli.migration.controllers import running
from cli.objects import Objects
from consumer.kube import KubernetesApi
from consumer.predecessors import strip_operations
from consumer.requests.exchange import Exchanger, Instruments
from shared.cluster import ClusterSettings, client, load_cluster
from shared.errors import ConflictError, TransientError
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from tests.cluster.control_plane import KubectlError

pytestmark = pytest.mark.cluster

NAMING = NamingSettings(cluster_name="prod")
NAMESPACE = "adopting"
KUBEFLOW, ODH = "modelregistry.kubeflow.org/finalizer", "modelregistry.opendatahub.io/finalizer"
OTHER = "example.com/other"
RIGHTS = [
    {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
]


def apply(plane, *objects: dict) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))


def named(kind: str, name: str, api_version: str = "v1", **fields: object) -> dict:
    metadata = (
        {"name": name}
        if kind in {"Namespace", "ClusterRole", "ClusterRoleBinding"}
        else {"name": name} | {"namespace": NAMESPACE}
    )
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata} | fields


def isvc(name: str, *finalizers: str) -> dict:
    made = named("InferenceService", name, "serving.kserve.io/v1beta1", spec={"predictor": {}})
    made["metadata"]["finalizers"] = list(finalizers)
    return made


@pytest.fixture(scope="module")
def prepared(control_plane):
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "adopter", "namespace": NAMESPACE}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "isvc-sync-adopt"}
    container = {"name": "m", "image": "x", "env": [{"name": "INFERENCE_SERVICE_CONTROLLER", "value": "managed"}]}
    template = {"metadata": {"labels": {"app": "m"}}, "spec": {"containers": [container]}}
    deployment = {"selector": {"matchLabels": {"app": "m"}}, "template": template}
    apply(control_plane, named("Namespace", NAMESPACE))
    everything = [
        named("ServiceAccount", "adopter"),
        named("ServiceAccount", "stranger"),
        named("ClusterRole", "isvc-sync-adopt", f"{rbac}/v1", rules=RIGHTS),
        named("ClusterRoleBinding", "isvc-sync-adopt", f"{rbac}/v1", roleRef=role, subjects=[subject]),
        named("Deployment", "predecessor", "apps/v1", spec=deployment),
        isvc("iris", KUBEFLOW, OTHER, ODH),
        isvc("going", ODH),
    ]
    apply(control_plane, *everything)
    yield control_plane
    merge = json.dumps({"metadata": {"finalizers": []}})
    for name in ("iris", "going"):
        with contextlib.suppress(KubectlError):  # gone already, which is what a test is about
            control_plane.kubectl("-n", NAMESPACE, "patch", "isvc", name, "--type=merge", "-p", merge)
    control_plane.kubectl("delete", "clusterrolebinding,clusterrole", "isvc-sync-adopt")
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
async def reaching(prepared, tmp_path):
    made = []

    def reach(account: str):
        token = prepared.service_account_token(NAMESPACE, account)
        path = prepared.write_kubeconfig(tmp_path / account, token)
        http = client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="adopt")
        made.append(http)
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        return Objects(http, NAMING), KubernetesApi(exchanger, lambda: math.inf, NAMING.api_version)

    yield reach
    for http in made:
        await http.aclose()


async def test_the_rights_named_are_enough_to_find_a_predecessor_that_runs(reaching):
    objects, _ = reaching("adopter")
    found = running(await objects.deployments(), {})
    assert [(each.namespace, each.name) for each in found if each.namespace == NAMESPACE] == [
        (NAMESPACE, "predecessor")
    ]
    assert NAMESPACE in await objects.namespaces()
    assert await objects.config_map(NAMESPACE, "none") == {}


async def test_without_them_it_is_said_which_right_is_missing(reaching):
    objects, _ = reaching("stranger")
    with pytest.raises(TransientError, match="no right to list deployments"):
        await objects.deployments()


async def test_both_finalizers_go_and_the_other_stays(reaching):
    objects, kubernetes = reaching("adopter")
    key = ObjectKey(Kind.ISVC, NAMESPACE, "iris")
    [live] = [each for each in await objects.of(Kind.ISVC) if each.key == key]
    await kubernetes.patch(key, strip_operations(live.uid, live.finalizers))
    assert (await kubernetes.get(key))["metadata"]["finalizers"] == [OTHER]
    with pytest.raises(ConflictError):  # the list has moved: the test of the value fails
        await kubernetes.patch(key, strip_operations(live.uid, live.finalizers))


async def test_an_object_that_is_deleted_and_held_goes(reaching, prepared):
    objects, kubernetes = reaching("adopter")
    key = ObjectKey(Kind.ISVC, NAMESPACE, "going")
    prepared.kubectl("-n", NAMESPACE, "delete", "isvc", "going", "--wait=false")
    [live] = [each for each in await objects.of(Kind.ISVC) if each.key == key]
    assert live.going
    await kubernetes.patch(key, strip_operations(live.uid, live.finalizers))
    assert await kubernetes.get(key) is None
