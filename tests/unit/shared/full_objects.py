"""Objects in which every field is set, secrets and all, and every kind of place in them and in the captured ones."""

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tests.unit.shared.captured import every_object

PREFIX = "modelregistry.kubeflow.org/"
FRAMEWORK = "model|sklearn|xgboost|tensorflow|pytorch|triton|onnx|huggingface|pmml|lightgbm|paddle"

CONTAINER = {
    "name": "c",
    "image": "registry.example/c:1",
    "command": ["run"],
    "args": ["--key", "k"],
    "workingDir": "/w",
    "env": [
        {"name": "TOKEN", "value": "v"},
        {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "envFrom": [{"prefix": "P", "secretRef": {"name": "s"}}],
    "ports": [{"name": "http", "containerPort": 8080}],
    "volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "p"}],
    "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "Authorization", "value": "b"}]}},
    "lifecycle": {"preStop": {"exec": {"command": ["stop"]}}},
    "securityContext": {"seLinuxOptions": {"user": "u"}},
}
MODEL = {
    **CONTAINER,
    "modelFormat": {"name": "sklearn", "version": "1", "other": "o"},
    "runtime": "r",
    "runtimeVersion": "1",
    "protocolVersion": "v2",
    "storageUri": "s3://models/iris",
    "storage": {"key": "k", "path": "p", "schemaPath": "s", "parameters": {"bucket": "b", "secret": "x"}},
}
POD = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "ephemeralContainers": [CONTAINER],
    "imagePullSecrets": [{"name": "s"}],
    "serviceAccountName": "sa",
    "nodeSelector": {"zone": "z"},
    "tolerations": [{"key": "k", "value": "v"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
    "volumes": [
        {"name": "v", "secret": {"secretName": "s"}},
        {"name": "n", "nfs": {"server": "n", "path": "/p"}},
        {"name": "c", "csi": {"driver": "d", "volumeAttributes": {"password": "p"}}},
    ],
}
A_COMPONENT = {
    **POD,
    "name": "p",
    "minReplicas": 1,
    "maxReplicas": 2,
    "canaryTrafficPercent": 10,
    "scaleMetric": "cpu",
    "scaleTarget": 60,
    "autoScaling": {"metrics": [{"external": {"authenticationRef": {"name": "a"}, "metric": {"query": "q"}}}]},
    "deploymentStrategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": "1"}},
    "labels": {PREFIX + "inference-service-id": "9", "team": "t"},
    "annotations": {"a.example/secret": "s", "serving.kserve.io/x": "y"},
    "logger": {"url": "http://log.example/x", "mode": "all", "storage": {"key": "k", "parameters": {"p": "q"}}},
    "batcher": {"timeout": "1"},
    "workerSpec": {**POD, "pipelineParallelSize": 2, "tensorParallelSize": 1},
    "model": MODEL,
    "storageUris": [{"uri": "s3://more", "mountPath": "/mnt", "secret": "s"}],
    "sklearn": MODEL,
    "custom": MODEL,
}
SMALL_MODEL = {"storageUri": "s3://models/iris", "runtime": "r", "env": [{"name": "TOKEN", "value": "v"}]}
SMALL_COMPONENT = {
    "labels": {PREFIX + "inference-service-id": "9"},
    "containers": [{"name": "c", "image": "i", "args": ["--key"]}],
    "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
    **dict.fromkeys(FRAMEWORK.split("|"), SMALL_MODEL),
}
METADATA = {
    "name": "iris",
    "namespace": "team-a",
    "uid": "5a1e",
    "resourceVersion": "41",
    "generation": 2,
    "creationTimestamp": "2026-11-30T10:00:00Z",
    "deletionTimestamp": "2026-11-30T11:00:00Z",
    "generateName": "g-",
    "selfLink": "/s",
    "finalizers": ["f"],
    "ownerReferences": [{"name": "o", "uid": "u", "kind": "k"}],
    "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}, "subresource": "status"}],
    "labels": {PREFIX + "registered-model-id": "1", "modelregistry.opendatahub.io/model-version-id": "3", "team": "t"},
    "annotations": {
        "serving.kserve.io/stop": "true",
        "serving.kserve.io/hook": '{"url": "http://h.example/x"}',
        "modelregistry.kubeflow.org/url": "http://h.example/y",
        "kubectl.kubernetes.io/last-applied-configuration": '{"spec": {"env": "e"}}',
        "other.example/serving.kserve.io/x": "o",
    },
}
STATUS = {
    "url": "http://iris.example/v1",
    "address": {"url": "http://iris.local", "CACerts": "c", "audience": "a", "name": "n"},
    "addresses": [{"url": "http://a.local", "name": "external", "CACerts": "c"}],
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t", "severity": "s"}
    ],
    "components": {
        "predictor": {
            "url": "http://p.example", "restUrl": "http://r.example", "grpcUrl": "http://g.example",
            "latestReadyRevision": "p-1", "address": {"url": "http://x"}, "traffic": [{"url": "http://t.example"}],
        }
    },
    "canaryStatuses": {"c": {"url": "http://c.example"}},
    "annotations": {"a": "b"},
    "observedGeneration": 2,
    "servingRuntimeName": "sr",
    "clusterServingRuntimeName": "csr",
    "deploymentMode": "Standard",
    "modelStatus": {
        "transitionStatus": "UpToDate",
        "states": {"activeModelState": "Loaded", "targetModelState": "Loaded"},
        "copies": {"totalCopies": 1, "failedCopies": 0},
        "lastFailureInfo": {"message": "m", "location": "l", "reason": "r", "modelRevisionName": "x"},
    },
}  # fmt: skip
ISVC = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": METADATA,
    "spec": {
        "predictor": A_COMPONENT,
        "transformer": SMALL_COMPONENT,
        "explainer": {**SMALL_COMPONENT, "art": MODEL},
        "canary": [{"trafficPercent": 10, "predictor": SMALL_COMPONENT, "name": "c"}],
    },
    "status": STATUS,
    "extra": {"a": "b"},
}
LLMISVC = {
    "apiVersion": "serving.kserve.io/v1alpha1",
    "kind": "LLMInferenceService",
    "metadata": METADATA,
    "spec": {
        "model": {"uri": "hf://org/model", "name": "m", "criticality": "c", "lora": {"adapters": [{"uri": "hf://l"}]}},
        "replicas": 2,
        "baseRefs": [{"name": "b"}],
        "template": POD,
        "worker": POD,
        "prefill": {"template": POD, "replicas": 1},
        "router": {"route": {"http": {"spec": {"hostnames": ["h"]}}}, "scheduler": {"template": POD}},
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
    },
    "status": STATUS,
}

Path = tuple[str | int, ...]


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every place of an object, containers before what they hold."""
    yield path, node
    parts = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, part in parts:
        yield from walk(part, (*path, key))


def pattern(path: Path) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in path)


def with_value(obj: Any, path: Path, value: Any) -> Any:
    """Return a copy of an object with another value at one place."""
    if not path:
        return value
    changed = copy.copy(obj)
    changed[path[0]] = with_value(obj[path[0]], path[1:], value)
    return changed


@cache
def places() -> dict[str, tuple[Any, Path, Any]]:
    """Return one object, path and value for every kind of place in both full objects and all captured ones."""
    found: dict[str, tuple[Any, Path, Any]] = {}
    for obj in (ISVC, LLMISVC, *every_object()):
        for path, value in walk(obj):
            found.setdefault(f"{obj['kind']} {pattern(path)}", (obj, path, value))
    return found
