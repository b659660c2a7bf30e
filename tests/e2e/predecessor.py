"""What a predecessor leaves behind in a running world: its records, its Deployment."""

import uuid
from typing import Any

from sandbox.cluster.resources import definition
from tests.e2e.pipeline import Pipeline
from tests.eventually import eventually

KUBEFLOW, ODH = "modelregistry.kubeflow.org/finalizer", "modelregistry.opendatahub.io/finalizer"


def environment_of(pipeline: Pipeline, namespace: str) -> str:
    environments = pipeline.registry.records("serving_environments")
    return next(each["id"] for each in environments if each["name"] == namespace)


def records_in(pipeline: Pipeline, namespace: str) -> list[dict[str, Any]]:
    """Return every record in a namespace's environment, ours or not."""
    environment = environment_of(pipeline, namespace)
    records = pipeline.registry.records("inference_services")
    return [each for each in records if each["servingEnvironmentId"] == environment]


def turn_back(pipeline: Pipeline, namespace: str) -> None:
    """Make a namespace's records what a predecessor would have written: without externalId and property of ours."""
    environment = environment_of(pipeline, namespace)
    content = {name: records for name, records in pipeline.registry.registry.dump().items() if records}
    for record in content["inference_services"]:
        if record["servingEnvironmentId"] == environment:
            record.pop("externalId", None)
            record["customProperties"].pop("isvc-sync", None)
    pipeline.registry.registry.replace(0, content)


def orphan(pipeline: Pipeline, namespace: str, name: str, **fields: Any) -> str:
    """Add a predecessor's DEPLOYED record of an object that is not in the cluster; return its id."""
    number = str(max(int(each["id"]) for each in pipeline.registry.records()) + 1)
    record = {
        "id": number,
        "name": f"{name}/{uuid.uuid4()}",
        "servingEnvironmentId": environment_of(pipeline, namespace),
        "registeredModelId": "1",
        "desiredState": "DEPLOYED",
    }
    pipeline.registry.seed(inference_services=[record | fields])
    return number


async def controller(pipeline: Pipeline, namespace: str, name: str, **environ: str) -> None:
    """Deploy a predecessor, as far as an API server knows of it."""
    if not any(kind.kind == "Deployment" for kind in pipeline.cluster.cluster.kinds.values()):
        pipeline.cluster.create(definition("Deployment", {"v1": []}, ["deploy"], group="apps"))
        kinds = pipeline.cluster.cluster.kinds
        await eventually(lambda: any(kind.kind == "Deployment" for kind in kinds.values()), "Deployments are served")
    variables = [{"name": key, "value": value} for key, value in environ.items()]
    container = {"name": "manager", "image": "ghcr.io/kubeflow/hub/controller:v0.3.9", "env": variables}
    pipeline.cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        }
    )
