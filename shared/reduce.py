"""From an object as the API server sends it to what enters the broker: the reduced form and its digest. Pure.

The producer reduces what it watches and publishes only what changed the digest; the consumer reduces what it GETs, so
that both talk about the same content. Free of secrets by construction: the form is built from a list of what may stay,
never by taking away; env, args, commands, managedFields and foreign annotations are not in the list, URIs lose
userinfo and query.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from shared.errors import BadEventError
from shared.objects import compare_resource_versions
from shared.uris import clean_image, clean_text, clean_uri

DIGEST_VERSION: Final = "v1"
KSERVE_PREFIXES: Final = ("serving.kserve.io/", "networking.kserve.io/")
REGISTRY_PREFIXES: Final = ("modelregistry.kubeflow.org/", "modelregistry.opendatahub.io/")
LOAD_FAILURES: Final = ("BlockedByFailedLoad", "InvalidSpec")
TEXT_MAX: Final = 1024  # of any single text; in every form alike, so that a truncated and a whole one say the same
TRUNCATED_LIST_MAX: Final = 32
_DECISIVE_CONDITIONS: Final = ("Ready", "Stopped", "PredictorReady")
_DECISIVE_KEYS: Final = (
    *("registered-model-id", "model-version-id", "inference-service-id", "name", "namespace", "url"),  # ours
    *("stop", "deploymentMode"),  # KServe's
)

ID_NAME: Final = "/inference-service-id"

Rule = Callable[[Any], Any]  # a value of the API -> what stays of it, None for nothing


@cache  # there is one configured prefix
def known_prefixes(configured: str) -> tuple[str, ...]:
    """Return the prefixes under which our labels may be found, the configured one first: it wins, and is written."""
    return tuple(dict.fromkeys((configured, *REGISTRY_PREFIXES)))


def reduce_object(raw: Any, prefixes: tuple[str, ...] = REGISTRY_PREFIXES) -> dict[str, Any]:
    """Return the reduced form of an object as the API server sent it (`ReducedObject` decodes it).

    `prefixes` are those of our labels and annotations. Raises BadEventError when the object cannot be identified.
    """
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    if not isinstance(metadata, Mapping):
        raise BadEventError("an object without metadata")
    identity = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    if not all(isinstance(part, str) and part for part in identity.values()):
        missing = sorted(key for key, part in identity.items() if not isinstance(part, str) or not part)
        raise BadEventError(f"object {identity['namespace']}/{identity['name']} lacks metadata.{', '.join(missing)}")
    compare_resource_versions(metadata["resourceVersion"], metadata["resourceVersion"])
    kept = KSERVE_PREFIXES + prefixes
    return {
        "apiVersion": _text(raw.get("apiVersion")) or "",
        "kind": _text(raw.get("kind")) or "",
        "metadata": {
            **identity,
            "generation": _integer(metadata.get("generation")) or 0,
            "creationTimestamp": _text(metadata.get("creationTimestamp")) or "",
            "deletionTimestamp": _text(metadata.get("deletionTimestamp")) or "",
            "labels": _selected(metadata.get("labels"), kept),
            "annotations": _selected(metadata.get("annotations"), kept),
            "hasAnnotations": bool(metadata.get("annotations")),
        },
        "spec": _SPEC(raw.get("spec")) or {},
        "status": _STATUS(raw.get("status")) or {},
    }


def digest_of(reduced: Mapping[str, Any], prefixes: tuple[str, ...] = REGISTRY_PREFIXES) -> str:
    """Return `v1:<hex>`: the same as long as nothing changes that a decision or a record depends on.

    Left out on purpose: resourceVersion, generation, observedGeneration, copies, finalizers, reasons, messages, times
    (of the modifications in a real cluster about 70 % touch nothing else). Our own id label is in: its removal by
    somebody else must be seen.
    """
    metadata, status = reduced["metadata"], reduced["status"]
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions", ())}
    transition = status.get("modelStatus", {}).get("transitionStatus", "")
    content = {
        "spec": reduced["spec"],
        "labels": _selected(metadata["labels"], prefixes),
        "annotations": metadata["annotations"],
        "url": status.get("url", ""),
        "address": [status.get("address", {}).get("url", ""), *(a.get("url", "") for a in status.get("addresses", ()))],
        "ready": conditions.get("Ready", ""),
        "stopped": conditions.get("Stopped", ""),
        "loadFailure": transition if transition in LOAD_FAILURES else "",
        "deploymentMode": status.get("deploymentMode", ""),
        "runtime": status.get("clusterServingRuntimeName") or status.get("servingRuntimeName") or "",
        "deletionTimestamp": metadata["deletionTimestamp"],
    }
    encoded = msgspec.json.encode(content, order="deterministic")
    return f"{DIGEST_VERSION}:{hashlib.sha256(encoded).hexdigest()}"


def truncate(reduced: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form that fits any broker: what the decision reads, long texts and lists cut.

    For the rare object that is larger than the broker's limit even when reduced. Its digest stays that of the whole.
    """
    metadata, spec, status = reduced["metadata"], reduced["spec"], reduced["status"]
    components = {
        name: {"model": component.get("model", {}), "labels": _decisive(component.get("labels", {}))}
        | ({"workerSpec": {}} if "workerSpec" in component else {})
        for name in ("predictor", "transformer", "explainer")
        if (component := spec.get(name)) is not None
    }
    conditions = [each for each in status.get("conditions", ()) if each.get("type") in _DECISIVE_CONDITIONS]
    maps = {name: _decisive(metadata[name]) for name in ("labels", "annotations")}
    slim: dict[str, Any] = _cut(
        {
            **reduced,
            "metadata": {**metadata, **maps},
            "spec": components
            | {"canary": [_slim_canary(each) for each in spec.get("canary", ())]}
            | ({"model": spec["model"]} if "model" in spec else {}),
            "status": {**status, "conditions": conditions, "addresses": status.get("addresses", [])[:1]},
        }
    )
    return slim


def _slim_canary(canary: Mapping[str, Any]) -> dict[str, Any]:
    predictor = canary.get("predictor")
    return {} if predictor is None else {"predictor": {"labels": _decisive(predictor.get("labels", {}))}}


def _decisive(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations that decide something, under whatever prefix; too long a text says nothing."""
    return {
        key: text for key, text in labels.items() if key.rpartition("/")[2] in _DECISIVE_KEYS and len(text) <= TEXT_MAX
    }


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if isinstance(value, list):
        return [_cut(item) for item in value[:TRUNCATED_LIST_MAX]]
    if isinstance(value, Mapping):
        return {key: _cut(item) for key, item in value.items()}
    return value


def _text(value: Any) -> str | None:
    return clean_text(value)[:TEXT_MAX] if isinstance(value, str) else None


def _uri(value: Any) -> str | None:
    return clean_uri(value)[:TEXT_MAX] if isinstance(value, str) else None


def _image(value: Any) -> str | None:
    return clean_image(value)[:TEXT_MAX] if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _fields(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule that keeps exactly these fields of a map (names as in the API), and of them what has a value."""
    ruled = tuple(rules.items())

    def keep(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        kept = {}
        for name, rule in ruled:  # a plain loop: this is half of what it costs to read an object
            if name in value and (part := rule(value[name])) is not None:
                kept[name] = part
        return kept

    return keep


def _items(rule: Rule) -> Rule:
    """Return the rule that applies `rule` to each item of a list."""

    def keep(value: Any) -> list[Any] | None:
        if not isinstance(value, list):
            return None
        return [part for part in map(rule, value) if part is not None]

    return keep


def _selected(value: Any, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the entries of a label or annotation map whose key has one of the prefixes."""
    if not isinstance(value, Mapping):
        return {}
    return {
        key: clean_text(text)
        for key, text in value.items()
        if isinstance(key, str) and isinstance(text, str) and key.startswith(prefixes)
    }


def _preset_labels(value: Any) -> dict[str, str] | None:
    """Labels of a component: only a preset id matters, under whatever prefix (it makes the write-back free)."""
    labels = value if isinstance(value, Mapping) else {}
    return {key: "" for key in labels if isinstance(key, str) and key.endswith(ID_NAME)} or None


_CONTAINERS: Final = _items(_fields({"name": _text, "image": _image}))
_MODEL: Final = _fields(
    {
        "modelFormat": _fields({"name": _text, "version": _text}),
        "runtime": _text,
        "runtimeVersion": _text,
        "protocolVersion": _text,
        "storageUri": _uri,
        "storage": _fields({"key": _text, "path": _uri, "schemaPath": _uri}),
        "image": _image,
    }
)
# The per-framework spellings that KServe's webhook turns into `model`; seen where that webhook does not run.
_FRAMEWORKS: Final = (
    "sklearn",
    "xgboost",
    "tensorflow",
    "pytorch",
    "triton",
    "onnx",
    "huggingface",
    "pmml",
    "lightgbm",
    "paddle",
)
_COMPONENT: Final = _fields(
    {
        "name": _text,
        "minReplicas": _integer,
        "maxReplicas": _integer,
        "canaryTrafficPercent": _integer,
        "scaleMetric": _text,
        "deploymentStrategy": _fields({"type": _text}),
        "labels": _preset_labels,
        "containers": _CONTAINERS,
        "workerSpec": _fields(
            {"pipelineParallelSize": _integer, "tensorParallelSize": _integer, "containers": _CONTAINERS}
        ),
        "model": _MODEL,
        "storageUris": _items(_fields({"uri": _uri, "mountPath": _text})),
        **dict.fromkeys(_FRAMEWORKS, _MODEL),
    }
)
_SPEC: Final = _fields(
    {
        "predictor": _COMPONENT,
        "transformer": _COMPONENT,
        "explainer": _COMPONENT,
        "canary": _items(_fields({"trafficPercent": _integer, "predictor": _COMPONENT})),
        "model": _fields({"uri": _uri, "name": _text}),
        "replicas": _integer,
        "baseRefs": _items(_fields({"name": _text})),
    }
)
_ADDRESS: Final = _fields({"url": _uri})
_STATUS: Final = _fields(
    {
        "url": _uri,
        "address": _ADDRESS,
        "addresses": _items(_ADDRESS),
        "conditions": _items(_fields({"type": _text, "status": _text, "reason": _text})),
        "deploymentMode": _text,
        "clusterServingRuntimeName": _text,
        "servingRuntimeName": _text,
        "modelStatus": _fields(
            {
                "transitionStatus": _text,
                "states": _fields({"activeModelState": _text, "targetModelState": _text}),
                "copies": _fields({"totalCopies": _integer}),
            }
        ),
    }
)
