"""Which Deployments count as a predecessor that runs."""

import pytest

from cli.migration.controllers import config_maps_of, running

HUB, ODH = "ghcr.io/kubeflow/hub/controller:v0.3.9", "quay.io/opendatahub/odh-model-controller:odh-v3.4"
KUBEFLOW_SWITCH, ODH_SWITCH = "INFERENCE_SERVICE_CONTROLLER", "MODELREGISTRY_STATE"


def deployment(
    *env: dict, image: str = HUB, replicas: int | None = 1, pods: int = 0, args: tuple[str, ...] = (), **more
):
    container = {"name": "manager", "image": image, "env": list(env), "args": list(args), **more}
    spec = {"template": {"spec": {"containers": [container]}}}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"metadata": {"namespace": "kubeflow", "name": "mr"}, "spec": spec, "status": {"replicas": pods}}


def value(name: str, text: str) -> dict:
    return {"name": name, "value": text}


def reference(name: str, key: str = "modelregistry-state") -> dict:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": "params", "key": key}}}


def on(one: dict, config_maps=None) -> bool:
    return bool(running([one], config_maps or {}))


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(deployment(value(KUBEFLOW_SWITCH, "managed")), id="kubeflow"),
        pytest.param(deployment(value(KUBEFLOW_SWITCH, "managed"), image="mirror/x"), id="from another image"),
        pytest.param(deployment(value(ODH_SWITCH, "managed"), image=ODH), id="odh"),
        pytest.param(deployment(value(ODH_SWITCH, "managed"), replicas=None), id="replicas left out: one"),
        pytest.param(deployment(value(ODH_SWITCH, "managed"), replicas=0, pods=1), id="a pod that still ends"),
        pytest.param(deployment(image=ODH, args=("--model-registry-inference-reconcile",)), id="the first of odh"),
        pytest.param(deployment(reference(ODH_SWITCH), image=ODH), id="a switch that cannot be read"),
        pytest.param(
            deployment({"name": ODH_SWITCH, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}), id="a secret"
        ),
        pytest.param(deployment(image=HUB, envFrom=[{"configMapRef": {"name": "x"}}]), id="envFrom, nobody knows"),
    ],
)
def test_it_runs(one):
    assert on(one)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(deployment(value(KUBEFLOW_SWITCH, "managed"), replicas=0), id="scaled to nothing"),
        pytest.param(deployment(value(KUBEFLOW_SWITCH, "Managed")), id="any other word does nothing"),
        pytest.param(deployment({"name": KUBEFLOW_SWITCH}), id="empty"),
        pytest.param(deployment(image=HUB), id="no switch: it does nothing"),
        pytest.param(deployment(value(ODH_SWITCH, "removed"), image=ODH), id="odh goes on, without this"),
        pytest.param(deployment(args=("--model-registry-inference-reconcile=false",), image=ODH), id="switched off"),
        pytest.param(deployment(value("OTHER", "managed"), image="nginx"), id="somebody else"),
        pytest.param({"metadata": {"namespace": "a", "name": "b"}, "spec": {}}, id="an odd one"),
    ],
)
def test_it_does_not(one):
    assert not on(one)


@pytest.mark.parametrize(("text", "is_on"), [("managed", True), ("removed", False)])
def test_a_switch_is_read_from_its_config_map(text, is_on):
    one = deployment(reference(ODH_SWITCH), image=ODH)
    assert config_maps_of([one]) == {("kubeflow", "params")}
    assert on(one, {("kubeflow", "params"): {"modelregistry-state": text}}) is is_on


def test_it_is_named_with_what_gave_it_away_and_the_way_out():
    [found] = running([deployment(value(KUBEFLOW_SWITCH, "managed"))], {})
    assert (found.namespace, found.name, found.why) == ("kubeflow", "mr", f"{KUBEFLOW_SWITCH}=managed")
    assert "kubectl -n kubeflow scale deployment mr --replicas=0" in found.way_out
