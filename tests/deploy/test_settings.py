"""What the deployments set is what the processes read."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.settings import ConsumerSettings
from producer.settings import ProducerSettings
from shared.settings import describe, load, near_misses

ROOT = Path(__file__).parents[2]
SETTINGS = {"producer": ProducerSettings, "consumer": ConsumerSettings}
OTHERS = {"OTEL_RESOURCE_ATTRIBUTES", "POD_NAME", "POD_NAMESPACE", "NODE_NAME"}
"""Read by the OpenTelemetry SDK, and the parts of which its value is made."""


def in_kubernetes(role: str) -> dict[str, str]:
    """The environment of the container, ConfigMaps included, with a text for what only a pod knows."""
    kustomization = yaml.safe_load((ROOT / "k8s/base/app/kustomization.yaml").read_text())
    maps = {
        generator["name"]: dict(literal.split("=", 1) for literal in generator["literals"])
        for generator in kustomization["configMapGenerator"]
    }
    [deployment] = [
        document
        for document in yaml.safe_load_all((ROOT / f"k8s/base/app/{role}.yaml").read_text())
        if document["kind"] == "Deployment"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    environment: dict[str, str] = {}
    for source in container["envFrom"]:
        environment |= maps[source["configMapRef"]["name"]]
    return environment | {variable["name"]: variable.get("value", "pod") for variable in container["env"]}


def in_compose(service: str) -> dict[str, str]:
    text = (ROOT / "docker-compose.yml").read_text()
    interpolated = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", text)  # ${NAME:-default}
    environment: dict[str, Any] = yaml.safe_load(interpolated)["services"][service]["environment"]
    return environment


WORLDS = [
    ("producer", in_kubernetes("producer")),
    ("consumer", in_kubernetes("consumer")),
    ("producer", in_compose("producer")),
    ("consumer", in_compose("consumer")),
    ("producer", in_compose("sandbox-producer")),
    ("consumer", in_compose("sandbox-consumer")),
]
IDS = ["k8s-producer", "k8s-consumer", "compose-producer", "compose-consumer", "sandbox-producer", "sandbox-consumer"]


@pytest.mark.parametrize(("role", "environment"), WORLDS, ids=IDS)
def test_every_variable_is_a_setting(role, environment):
    known = {row.variable for row in describe(SETTINGS[role])} | OTHERS
    assert sorted(environment.keys() - known) == []
    assert near_misses(SETTINGS[role], environment) == ()


@pytest.mark.parametrize(("role", "environment"), WORLDS, ids=IDS)
def test_the_values_are_accepted(role, environment):
    load(SETTINGS[role], environment)


def test_the_probes_ask_the_port_that_the_health_server_listens_on():
    [default] = [row.default for row in describe(ProducerSettings) if row.variable == "HEALTH_PORT"]
    for role in SETTINGS:
        text = (ROOT / f"k8s/base/app/{role}.yaml").read_text()
        assert re.findall(r"containerPort: (\d+)", text) == [default]
        assert "HEALTH_PORT" not in in_kubernetes(role)
