"""`isvc-sync replay --to kube:` on a real API server, with exactly the rights that `docs/replay-to.md` names."""

import json

import pytest

from replay.target.cluster import MARK
from tests.integration.replay.commands import replay
from tests.unit.replay.replayed import START, story, write

pytestmark = pytest.mark.cluster

HOME = "replaying"  # of the ServiceAccount
PLAYED = "isvc-replay-real-team-a"
RBAC = "rbac.authorization.k8s.io"
ISVCS = f"/apis/serving.kserve.io/v1beta1/namespaces/{PLAYED}/inferenceservices"
MODEL_VERSION = "modelregistry.kubeflow.org/model-version-id"
RIGHTS = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "delete"]},
    {
        "apiGroups": ["serving.kserve.io"],
        "resources": ["inferenceservices"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    },
    {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices/status"], "verbs": ["patch"]},
]


@pytest.fixture(scope="module")
def plane(control_plane):
    subject = {"kind": "ServiceAccount", "name": "player", "namespace": HOME}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": HOME}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}},
        *(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": HOME}}
            for name in ("player", "stranger")
        ),
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": HOME}, "rules": RIGHTS},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": HOME},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    control_plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    yield control_plane
    control_plane.kubectl("delete", "clusterrolebinding,clusterrole", HOME)
    control_plane.kubectl("delete", "namespace", HOME, "--wait=false")


@pytest.fixture
def environ(plane, tmp_path):
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", plane.service_account_token(HOME, "player"))
    return {"KUBECONFIG": str(kubeconfig)}


def watched(plane, since: str) -> list[dict]:
    """Return what a watch from that resourceVersion shows of the replay's namespace."""
    text = plane.kubectl("get", "--raw", f"{ISVCS}?watch=1&resourceVersion={since}&timeoutSeconds=2")
    return [json.loads(line) for line in text.splitlines()]


async def test_a_capture_lives_and_leaves_a_real_cluster(plane, environ, tmp_path):
    since = json.loads(plane.kubectl("get", "--raw", ISVCS))["metadata"]["resourceVersion"]
    capture = write(tmp_path / "story.jsonl", [START, *story()])
    chosen = ("--to", "kube:", "--name", "real")

    kept = await replay(capture, *chosen, "--keep", environ=environ)
    assert kept.code == 0, kept.err
    assert "2 created, 2 changed, 1 deleted." in kept.out
    shown = watched(plane, since)
    assert [
        (each["type"], each["object"]["metadata"]["name"], each["object"]["metadata"]["labels"].get(MODEL_VERSION))
        for each in shown
    ] == [
        ("ADDED", "iris", "2"),
        ("MODIFIED", "iris", "2"),
        ("MODIFIED", "iris", "3"),
        ("ADDED", "other", None),
        ("DELETED", "iris", "3"),
    ]
    assert shown[1]["object"]["status"]["url"] == "http://iris.team-a.example.com"
    assert {each["object"]["metadata"]["annotations"][MARK] for each in shown} == {"real"}

    gone = await replay(capture, *chosen, environ=environ)
    assert gone.code == 0, gone.err
    assert json.loads(plane.kubectl("get", "--raw", ISVCS))["items"] == []
    home = json.loads(plane.kubectl("get", "namespace", PLAYED, "-o", "json"))
    assert home["status"]["phase"] == "Terminating", "its finalizer is the namespace controller's, which is not here"


async def test_without_the_rights_it_says_what_is_refused(plane, tmp_path):
    stranger = plane.service_account_token(HOME, "stranger")
    environ = {"KUBECONFIG": str(plane.write_kubeconfig(tmp_path / "kubeconfig", stranger))}
    capture = write(tmp_path / "story.jsonl", [START, *story()])
    done = await replay(capture, "--to", "kube:", "--name", "refused", environ=environ)
    assert done.code == 3
    assert 'no right to get namespaces in API group ""' in done.err
    assert "What was made" not in done.err
