"""The deployment files among themselves, and against the project: what can be said without a container engine."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from consumer.app import DRAIN_S
from consumer.ownership.group import LEAVE_S
from consumer.settings import OwnershipSettings
from producer.settings import LeaseSettings
from sandbox.broker import find_nats_server
from tests.cluster.control_plane import BUILT_ASSETS
from tests.cluster.processes import Guard, Process

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
NATS_CONF = ROOT / "k8s" / "kind" / "nats.conf"
CHECKER = BUILT_ASSETS / "deploycheck"
needs_checker = pytest.mark.skipif(
    not CHECKER.exists(), reason=f"{CHECKER} is not built: `make test-cluster` without KUBEBUILDER_ASSETS builds it"
)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())


def documents() -> list[dict[str, Any]]:
    """All Kubernetes documents below k8s/ as they are written, before kustomize."""
    texts = [path.read_text() for path in (ROOT / "k8s").rglob("*.yaml") if path.name != "kustomization.yaml"]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def pod_specs() -> list[dict[str, Any]]:
    return [document["spec"]["template"]["spec"] for document in documents() if "template" in document.get("spec", {})]


def images() -> list[str]:
    in_pods = [container["image"] for spec in pod_specs() for container in spec["containers"]]
    return in_pods + [service["image"] for service in compose()["services"].values()]


def check(*args: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run([CHECKER, *args], env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- one truth ---


def test_the_image_has_the_version_of_the_project_everywhere():
    version = project()["project"]["version"]
    kustomization = yaml.safe_load((ROOT / "k8s/base/app/kustomization.yaml").read_text())
    assert kustomization["images"] == [{"name": "isvc-sync", "newTag": version}]
    assert f"image=isvc-sync:{version}\n" in (ROOT / "k8s/kind/up.sh").read_text()
    ours = {service["image"] for service in compose()["services"].values() if "build" in service}
    assert ours == {f"isvc-sync:{version}"}


def test_every_foreign_image_is_pinned_to_one_version():
    foreign = sorted(set(images()) - {"isvc-sync", f"isvc-sync:{project()['project']['version']}"})
    assert [re.sub(r":v?\d+\.\d+(\.\d+)?(-alpine)?$", "", image) for image in foreign] == [
        "ghcr.io/kubeflow/hub/server",
        "nats",
        "postgres",
    ]


def test_the_image_holds_every_package_of_the_project_and_the_builder_sees_no_more():
    packages = {name.rstrip("*") for name in project()["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = set(re.findall(r"^COPY (\w+)/ \1/$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == packages | {"requirements"}
    visible = re.findall(r"^!(\w+)/$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(visible) == copied


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [one for one in documents() if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_of_two_one_is_always_there(role):
    deployment = named("Deployment", f"isvc-sync-{role}")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}
    budget = named("PodDisruptionBudget", f"isvc-sync-{role}")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == deployment["selector"]
    [spread] = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["selector"]


def test_the_holder_of_the_lease_is_the_pod_and_the_right_is_to_the_lease_that_is_used():
    [container] = named("Deployment", "isvc-sync-producer")["spec"]["template"]["spec"]["containers"]
    [name] = [one for one in container["env"] if one["name"] == "POD_NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    rules = named("Role", "isvc-sync-producer-lease")["rules"]
    assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [[LeaseSettings().lease_name]]


def test_a_consumer_has_the_time_to_give_its_shards_away():
    spec = named("Deployment", "isvc-sync-consumer")["spec"]["template"]["spec"]
    telemetry_s, broker_s = 2.0, 5.0
    assert spec["terminationGracePeriodSeconds"] > LEAVE_S + DRAIN_S + OwnershipSettings().shard_lease_s / 4 + (
        broker_s + telemetry_s
    )
    [container] = spec["containers"]
    [name] = [one for one in container["env"] if one["name"] == "POD_NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


# --- compose and kind ---


def test_compose_fits_its_schema():
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_compose_publishes_on_loopback_only():
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert "127.0.0.1:4222:4222" in ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.cluster
@needs_checker
@pytest.mark.parametrize(
    ("profile", "services"),
    [
        ("cluster", ["consumer", "nats", "postgres", "producer", "registry"]),
        ("sandbox", ["nats", "sandbox", "sandbox-consumer", "sandbox-producer"]),
    ],
)
def test_compose_understands_each_profile(profile, services):
    assert sorted(check("compose", str(COMPOSE), profile, HOME="/home/somebody")["services"]) == services


@pytest.mark.cluster
@needs_checker
def test_compose_takes_the_kubeconfig_that_is_set_and_else_the_usual_one():
    usual = check("compose", str(COMPOSE), "cluster", HOME="/home/somebody")
    assert usual["secrets"]["kubeconfig"]["file"] == "/home/somebody/.kube/config"
    mine = check("compose", str(COMPOSE), "cluster", HOME="/home/somebody", KUBECONFIG="/etc/mine")
    assert mine["secrets"]["kubeconfig"]["file"] == "/etc/mine"


@pytest.mark.cluster
@needs_checker
def test_kind_understands_its_configuration_of_one_control_plane_and_two_workers():
    nodes = check("kind", "k8s/kind/cluster.yaml")["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker", "worker"]
    assert len({node["image"] for node in nodes}) == 1
    assert re.fullmatch(r"kindest/node:v1\.\d+\.\d+@sha256:[0-9a-f]{64}", nodes[0]["image"])


def test_the_kind_script_is_valid_bash():
    done = subprocess.run(["bash", "-n", ROOT / "k8s/kind/up.sh"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- the broker that compose and kind start ---


def started_as_in_compose(guard: Guard, directory: Path) -> Process:
    """nats-server with the very file and arguments of compose; only paths and ports are this machine's."""
    here = {"/etc/nats/nats.conf": str(NATS_CONF), "/data": str(directory / "data")}
    arguments = [here.get(argument, argument) for argument in compose()["services"]["nats"]["command"]]
    assert set(here.values()) < set(arguments), "both were replaced"
    ours = ["--addr", "127.0.0.1", "--port", "-1", "--http_port", "-1", "--ports_file_dir", str(directory)]
    return Process(guard, [find_nats_server(), *arguments, *ours], directory / "log", {})


def test_the_nats_server_of_compose_and_kind_flushes_every_message(tmp_path):
    guard = Guard()
    server = started_as_in_compose(guard, tmp_path)
    ports_file = tmp_path / f"nats-server_{server.pid}.ports"
    try:
        server.wait_until(lambda: ports_file.exists() and ports_file.stat().st_size > 0, "listening")
        monitor = json.loads(ports_file.read_text())["monitoring"][0]
        assert httpx.get(f"{monitor}/healthz?js-enabled-only=true").json() == {"status": "ok"}
        config = httpx.get(f"{monitor}/jsz?config=true").json()["config"]
    finally:
        server.stop()
        guard.close()
    assert config["sync_always"] is True
    assert config["max_storage"] == 4 * 1024**3
    assert config["store_dir"].startswith(str(tmp_path / "data"))


def test_kind_starts_the_same_broker_as_compose():
    [container] = [c for spec in pod_specs() for c in spec["containers"] if c["name"] == "nats"]
    service = compose()["services"]["nats"]
    assert (container["image"], container["args"]) == (service["image"], service["command"])
    assert yaml.safe_load((ROOT / "k8s/kind/kustomization.yaml").read_text())["configMapGenerator"] == [
        {"name": "nats", "namespace": "nats", "files": ["nats.conf"]}
    ]
    assert compose()["configs"]["nats"]["file"] == "k8s/kind/nats.conf"
