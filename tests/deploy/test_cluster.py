"""k8s/ on a real API server: everything applies, the pods fit the restricted profile, and each account can do exactly
what it needs."""

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from opentelemetry.trace import NoOpTracer

from consumer.kube_events import EventsApi, KubernetesEvents
from consumer.notices import About, registered, sync_failed
from consumer.requests.exchange import Exchanger, Instruments
from shared.cluster import ClusterSettings, client, load_cluster
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey
from tests.cluster.control_plane import ControlPlane
from tests.eventually import eventually

pytestmark = pytest.mark.cluster

K8S = Path(__file__).parents[2] / "k8s"
NAMESPACE = "isvc-sync"
KINDS = ("inferenceservices", "llminferenceservices")
ISVCS = "/apis/serving.kserve.io/v1beta1/namespaces/team-a/inferenceservices"
ISVC = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "iris", "namespace": "team-a"},
    "spec": {},
}


def apply(plane: ControlPlane, directory: str, *flags: str) -> str:
    return plane.kubectl("apply", "--server-side", "--validate=strict", *flags, "--kustomize", str(K8S / directory))


@pytest.fixture(scope="module")
def deployed(control_plane: ControlPlane) -> ControlPlane:
    """The API server with k8s/base applied, and an ISVC in the namespace team-a."""
    for namespace in ("kubeflow", "kserve", "team-a", "nats"):  # a dry run cannot make the last one first
        manifest = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    apply(control_plane, "base")
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(ISVC))
    return control_plane


@pytest.fixture
def consumer(deployed):
    with deployed.client(deployed.service_account_token(NAMESPACE, "isvc-sync-consumer")) as client:
        yield client


@pytest.fixture
def producer(deployed):
    with deployed.client(deployed.service_account_token(NAMESPACE, "isvc-sync-producer")) as client:
        yield client


# --- applying ---


def test_applying_the_base_again_changes_nothing(deployed):
    versions = "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{'\\n'}{end}"
    query = ("get", "deployments,serviceaccounts,roles,rolebindings,configmaps", "-n", NAMESPACE, "-o", versions)
    before = deployed.kubectl(*query)
    assert "Deployment/isvc-sync-consumer" in before
    apply(deployed, "base")
    assert deployed.kubectl(*query) == before


def pod_templates(plane: ControlPlane, directory: Path) -> dict[str, Any]:
    rendered = yaml.safe_load_all(plane.kubectl("kustomize", str(directory)))
    return {item["metadata"]["name"]: item["spec"]["template"] for item in rendered if item["kind"] == "Deployment"}


def test_a_changed_setting_is_a_new_pod_template_of_those_that_read_it(deployed, tmp_path):
    changed = {
        "name": "isvc-sync-consumer",
        "namespace": NAMESPACE,
        "behavior": "merge",
        "literals": ["WRITE_BACK=off"],
    }
    overlay = {"resources": [os.path.relpath(K8S / "base", tmp_path)], "configMapGenerator": [changed]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    before, after = pod_templates(deployed, K8S / "base"), pod_templates(deployed, tmp_path)
    assert before["isvc-sync-producer"] == after["isvc-sync-producer"]
    assert before["isvc-sync-consumer"] != after["isvc-sync-consumer"]


def test_everything_for_a_kind_cluster_applies(deployed):
    applied = apply(deployed, "kind", "--dry-run=server")  # what it would leave is found by discovery, in other tests
    assert {"statefulset.apps/nats", "statefulset.apps/model-registry-db", "deployment.apps/model-registry"} <= {
        line.split()[0] for line in applied.splitlines()
    }


# --- pods ---


def pod(plane: ControlPlane, deployment: str) -> dict[str, Any]:
    stored = yaml.safe_load(plane.kubectl("get", "deployment", deployment, "-n", NAMESPACE, "-o", "yaml"))
    spec = stored["spec"]["template"]["spec"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "dry-run"}, "spec": spec}


def dry_run(plane: ControlPlane, body: dict[str, Any]) -> httpx.Response:
    with plane.client() as client:
        return client.post(f"/api/v1/namespaces/{NAMESPACE}/pods", params={"dryRun": "All"}, json=body)


@pytest.mark.parametrize("deployment", ["isvc-sync-producer", "isvc-sync-consumer"])
def test_the_pods_fit_the_restricted_profile_and_get_the_token_of_their_account(deployed, deployment):
    answer = dry_run(deployed, pod(deployed, deployment))
    assert answer.status_code == 201, answer.text
    mounts = [mount["mountPath"] for mount in answer.json()["spec"]["containers"][0]["volumeMounts"]]
    assert "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
    assert answer.json()["spec"]["serviceAccountName"] == deployment


def test_a_pod_that_is_not_restricted_is_refused(deployed):
    body = pod(deployed, "isvc-sync-consumer")
    del body["spec"]["containers"][0]["securityContext"]["capabilities"]
    answer = dry_run(deployed, body)
    assert answer.status_code == 403
    assert 'violates PodSecurity "restricted:latest": unrestricted capabilities' in answer.json()["message"]


def test_a_pod_of_the_account_that_does_not_ask_gets_no_token(deployed):
    body = pod(deployed, "isvc-sync-consumer")
    del body["spec"]["automountServiceAccountToken"]
    mounts = dry_run(deployed, body).json()["spec"]["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == ["/tmp"]


# --- rights ---


def rights(client: httpx.Client, namespace: str) -> set[tuple[str, str, str, str]]:
    """All that RBAC allows in `namespace`, as (verb, API group, resource, name or "*"), less what everybody has."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json=body).raise_for_status()
    status = answer.json()["status"]
    assert status["incomplete"] is False
    return {
        (verb, group, resource, name)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ["*"])
        if group not in {"authorization.k8s.io", "authentication.k8s.io"}  # to ask for one's own rights and name
    }


PRODUCER = {
    *((verb, "serving.kserve.io", kind, "*") for verb in ("get", "list", "watch") for kind in KINDS),
    *((verb, "", "namespaces", "*") for verb in ("get", "list")),
}
PRODUCER_LEASE = {
    ("create", "coordination.k8s.io", "leases", "*"),
    ("get", "coordination.k8s.io", "leases", "isvc-sync-producer"),
    ("update", "coordination.k8s.io", "leases", "isvc-sync-producer"),
}
CONSUMER = {
    *((verb, "serving.kserve.io", kind, "*") for verb in ("get", "patch") for kind in KINDS),
    ("get", "", "namespaces", "kube-system"),
    ("create", "", "events", "*"),
    ("patch", "", "events", "*"),
}
CONSUMER_REGISTRY = {("get", "", "services", "*"), ("list", "", "services", "*")}
CONSUMER_KSERVE = {("get", "", "configmaps", "inferenceservice-config")}


@pytest.mark.parametrize(
    ("namespace", "own"),
    [("team-a", set()), ("kube-system", set()), ("kubeflow", set()), ("kserve", set()), (NAMESPACE, PRODUCER_LEASE)],
)
def test_the_producer_has_exactly_its_rights(producer, namespace, own):
    assert rights(producer, namespace) == PRODUCER | own


@pytest.mark.parametrize(
    ("namespace", "own"),
    [
        ("team-a", set()),
        ("kube-system", set()),
        (NAMESPACE, set()),
        ("kubeflow", CONSUMER_REGISTRY),
        ("kserve", CONSUMER_KSERVE),
    ],
)
def test_the_consumer_has_exactly_its_rights(consumer, namespace, own):
    assert rights(consumer, namespace) == CONSUMER | own


def patch_label(client: httpx.Client) -> httpx.Response:
    headers = {"Content-Type": "application/merge-patch+json"}
    return client.patch(f"{ISVCS}/iris", json={"metadata": {"labels": {"checked": "yes"}}}, headers=headers)


def test_the_producer_lists_and_watches_every_namespace_and_patches_nothing(producer):
    everywhere = "/apis/serving.kserve.io/v1beta1/inferenceservices"
    listed = producer.get(everywhere).raise_for_status().json()
    assert "iris" in [item["metadata"]["name"] for item in listed["items"]]
    since = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    assert producer.get(everywhere, params=since).status_code == 200
    assert patch_label(producer).status_code == 403


def test_the_producer_holds_its_own_lease_and_no_other(producer):
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    lease: dict[str, Any] = {"metadata": {"name": "isvc-sync-producer"}, "spec": {"holderIdentity": "me"}}
    created = producer.post(leases, json=lease)
    assert created.status_code == 201, created.text
    lease = created.json()
    lease["spec"]["holderIdentity"] = "still me"
    assert producer.put(f"{leases}/isvc-sync-producer", json=lease).status_code == 200
    assert producer.get(f"{leases}/isvc-sync-producer").json()["spec"]["holderIdentity"] == "still me"
    assert producer.get(f"{leases}/another").status_code == 403
    assert producer.delete(f"{leases}/isvc-sync-producer").status_code == 403


def test_the_consumer_gets_and_patches_an_isvc_and_does_not_list_update_or_delete_it(consumer):
    isvc = consumer.get(f"{ISVCS}/iris").raise_for_status().json()
    assert patch_label(consumer).status_code == 200
    refused = [consumer.get(ISVCS), consumer.put(f"{ISVCS}/iris", json=isvc), consumer.delete(f"{ISVCS}/iris")]
    assert [answer.status_code for answer in refused] == [403, 403, 403]


def test_the_consumer_reads_the_uid_of_kube_system_and_no_other_namespace(consumer):
    assert consumer.get("/api/v1/namespaces/kube-system").json()["metadata"]["uid"]
    assert consumer.get("/api/v1/namespaces/team-a").status_code == 403


async def test_the_consumer_tells_the_owner_by_events_that_kubectl_describe_shows_and_reads_none(
    deployed, consumer, tmp_path
):
    metadata = consumer.get(f"{ISVCS}/iris").raise_for_status().json()["metadata"]
    key = ObjectKey(Kind.ISVC, "team-a", "iris")
    about = About(key, metadata["uid"], metadata["resourceVersion"])
    token = deployed.service_account_token(NAMESPACE, "isvc-sync-consumer")
    path = deployed.write_kubeconfig(tmp_path / "consumer.yaml", token)
    clock, words = time.time() - 61, []
    async with client(load_cluster(ClusterSettings(kubeconfig=str(path)), {}), use="control", role="consumer") as http:
        exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
        api = EventsApi(exchanger, NamingSettings(cluster_name="c").api_version)
        notices = KubernetesEvents(api, lambda: clock, words.append)
        telling = asyncio.create_task(notices.run())
        notices.tell(about, registered("7", "1", "http://registry.example"))
        notices.tell(about, sync_failed("model version 404 does not exist in the registry"))
        await eventually(lambda: words == ["posted", "posted"])
        clock += 61
        notices.tell(about, sync_failed("model version 405 does not exist in the registry"))
        await eventually(lambda: words == ["posted", "posted", "counted"])
        telling.cancel()
        await asyncio.wait([telling])
    described = deployed.kubectl("describe", "inferenceservice", "iris", "--namespace", "team-a")
    shown = described.partition("Events:")[2]
    assert re.search(r"Normal +Registered .* isvc-sync-consumer +registered model 1 is recorded .* record 7 in", shown)
    assert re.search(
        r"Warning +RegistrySyncFailed .*\(x2 over .* isvc-sync-consumer +model version 405 does not", shown
    )
    assert consumer.get("/api/v1/namespaces/team-a/events").status_code == 403


def test_the_consumer_reads_no_secret_and_only_the_one_configmap(consumer):
    assert consumer.get("/api/v1/namespaces/isvc-sync/secrets").status_code == 403
    assert consumer.get("/api/v1/namespaces/kserve/configmaps/inferenceservice-config").status_code == 404
    assert consumer.get("/api/v1/namespaces/kserve/configmaps/another").status_code == 403
