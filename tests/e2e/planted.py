"""Objects with a secret in every place that could hold one."""

import itertools
import json
from typing import Any

from tests.e2e.pipeline import isvc

NEEDLE = "hush"
_numbers = itertools.count(1)


def secret() -> str:
    """Return a new secret; each is another, so that a failure says which place leaks."""
    return f"{NEEDLE}{next(_numbers):03}x"


def secret_uri(scheme: str) -> str:
    return f"{scheme}://user:{secret()}@host.example.com/models/iris?signature={secret()}#{secret()}"


def containers() -> list[dict[str, Any]]:
    return [
        {
            "name": "kserve-container",
            "image": f"user:{secret()}@registry.example.com/serve:1",
            "env": [
                {"name": "TOKEN", "value": secret()},
                {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": secret()}}},
            ],
            "envFrom": [{"secretRef": {"name": secret()}}],
            "args": ["--token", secret(), f"--url=https://u:{secret()}@h/x"],
            "command": ["serve", secret()],
            "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", secret()]}}},
            "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "A", "value": secret()}]}},
        }
    ]


def model() -> dict[str, Any]:
    return {
        "modelFormat": {"name": "sklearn"},
        "storageUri": secret_uri("https"),
        "storage": {
            "key": "minio",
            "path": f"models/iris?token={secret()}",
            "parameters": {"secret": secret(), "uri": secret_uri("s3")},
        },
        "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": secret()}],
        "args": ["--password", secret()],
        "command": [secret()],
    }


def component() -> dict[str, Any]:
    return {
        "containers": containers(),
        "initContainers": containers(),
        "annotations": {"example.com/token": secret()},
        "labels": {"example.com/token": secret()},
        "imagePullSecrets": [{"name": secret()}],
        "volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"token": secret()}}}],
        "logger": {"mode": "all", "url": secret_uri("http")},
        "storageUris": [{"uri": secret_uri("gs"), "mountPath": "/mnt"}],
        "nodeSelector": {"example.com/token": secret()},
    }


def metadata() -> dict[str, Any]:
    return {
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"env": secret()}}),
            "example.com/token": secret(),
            "serving.kserve.io/storage-initializer-uri": secret_uri("s3"),
        },
        "finalizers": [f"example.com/{secret()}"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": secret(), "uid": "u"}],
        "managedFields": [{"manager": secret(), "operation": "Update"}],
    }


def status() -> dict[str, Any]:
    address = {"url": secret_uri("http")}
    return {
        "url": secret_uri("https"),
        "address": address,
        "addresses": [address],
        "conditions": [{"type": "Ready", "status": "True", "message": secret()}],
        "modelStatus": {"transitionStatus": "UpToDate", "lastFailureInfo": {"message": secret()}},
        "components": {"predictor": {"url": secret_uri("http")}},
        "annotations": {"x": secret()},
    }


def planted(name: str, registered_model: str) -> dict[str, Any]:
    """Return an InferenceService with a secret in every place that could hold one."""
    obj = isvc(name, model=registered_model)
    obj["metadata"] |= metadata()
    parts = {part: component() for part in ("predictor", "transformer", "explainer")}
    parts["predictor"] |= {
        "model": model(),
        "sklearn": model(),
        "workerSpec": {"containers": containers()},
    }
    obj["spec"] = {**parts, "canary": [{"trafficPercent": 10, "predictor": component() | {"model": model()}}]}
    obj["status"] = status()
    return obj


def planted_llm(name: str) -> dict[str, Any]:
    obj = planted(name, "3")
    spec = {
        "model": {"uri": secret_uri("hf"), "name": "chat", "lora": {"adapters": [{"uri": secret_uri("hf")}]}},
        "template": {"containers": containers()},
        "worker": {"containers": containers()},
        "prefill": {"template": {"containers": containers()}},
        "router": {"scheduler": {"template": {"containers": containers()}}},
    }
    return obj | {"kind": "LLMInferenceService", "spec": spec}
