"""Nothing secret enters the reduced form, its digest changes with what matters only, and no odd object breaks it.

What may stay is written down here a second time, by hand (`ALLOWED`), so that a field added to the one list without
the other is seen.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
import pytest

from shared.errors import BadEventError
from shared.objects import ReducedObject
from shared.reduce import digest_of, reduce_object, truncate
from tests.unit.shared.captured import every_object, stories, watch_events

PREFIX = "modelregistry.kubeflow.org/"
COMPONENT = r"spec\.(predictor|transformer|explainer|canary\.\*\.predictor)"
FRAMEWORK = "model|sklearn|xgboost|tensorflow|pytorch|triton|onnx|huggingface|pmml|lightgbm|paddle"
REGISTRY_KEY = r"modelregistry\.(kubeflow\.org|opendatahub\.io)/[^.]+"
OUR_KEY = rf"((serving|networking)\.kserve\.io/[^.]+|{REGISTRY_KEY})"
ALLOWED = re.compile(
    "|".join(
        (
            r"apiVersion|kind",
            r"metadata\.(name|namespace|uid|resourceVersion|generation|creationTimestamp|deletionTimestamp)",
            rf"metadata\.(labels|annotations)\.{OUR_KEY}",
            rf"{COMPONENT}\.(name|scaleMetric|deploymentStrategy\.type|labels\.{REGISTRY_KEY})",
            rf"{COMPONENT}\.(minReplicas|maxReplicas|canaryTrafficPercent)",
            rf"{COMPONENT}\.(workerSpec\.)?containers\.\*\.(name|image)",
            rf"{COMPONENT}\.workerSpec\.(pipelineParallelSize|tensorParallelSize)",
            rf"{COMPONENT}\.({FRAMEWORK})\.(modelFormat\.(name|version)|runtime|runtimeVersion|protocolVersion)",
            rf"{COMPONENT}\.({FRAMEWORK})\.(storageUri|image|storage\.(key|path|schemaPath))",
            rf"{COMPONENT}\.storageUris\.\*\.(uri|mountPath)",
            r"spec\.canary\.\*\.trafficPercent",
            r"spec\.(model\.(uri|name)|replicas|baseRefs\.\*\.name)",
            r"status\.(url|address\.url|addresses\.\*\.url|conditions\.\*\.(type|status|reason))",
            r"status\.(deploymentMode|clusterServingRuntimeName|servingRuntimeName)",
            r"status\.modelStatus\.(transitionStatus|states\.(activeModelState|targetModelState)|copies\.totalCopies)",
        )
    )
)
IDENTITY = {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"}

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


def leaves() -> list[tuple[str, Any, Path]]:
    return [
        (pattern(path), obj, path)
        for obj, path, value in places().values()
        if not isinstance(value, (dict, list)) and path
    ]


def written(obj: Any) -> tuple[str, str]:
    """Return what would enter the broker: the reduced form, and the truncated one."""
    reduced = reduce_object(obj)
    return msgspec.json.encode(reduced).decode(), msgspec.json.encode(truncate(reduced)).decode()


def test_the_places_are_those_of_real_objects_and_more():
    assert len(leaves()) > 500
    assert {"spec.predictor.model.storageUri", "status.components.predictor.url"} <= {name for name, _, _ in leaves()}


def test_a_word_survives_only_in_the_fields_that_are_allowed():
    survived = set()
    for name, obj, path in leaves():
        if name == "metadata.resourceVersion":
            continue
        if "CANARY" in "".join(written(with_value(obj, path, "CANARY"))):
            survived.add(name)
    assert {name for name in survived if not ALLOWED.fullmatch(name)} == set()
    assert {"spec.predictor.model.storageUri", "metadata.annotations.serving.kserve.io/stop"} <= survived


def test_a_secret_in_a_uri_survives_nowhere():
    for name, obj, path in leaves():
        if name not in IDENTITY:
            for uri in (
                "s3://CANARY:CANARY@host.example:80/path?CANARY=CANARY#CANARY",
                '{"a": ["https://CANARY:CANARY@host/x?CANARY"], "b": "https://u:CANARY@i/y"}',
            ):
                whole, slim = written(with_value(obj, path, uri))
                assert "CANARY" not in whole, name
                assert "CANARY" not in slim, name


def test_what_nobody_foresaw_does_not_survive():
    for obj, path, value in places().values():
        grown = (
            {**value, "CANARY": "CANARY", "canary": {"name": "CANARY", "value": "CANARY"}}
            if isinstance(value, dict)
            else [*value, "CANARY", ["CANARY"], {"value": "CANARY", "message": "CANARY"}]
        ) if isinstance(value, (dict, list)) else None  # fmt: skip
        if grown is not None:
            assert "CANARY" not in "".join(written(with_value(obj, path, grown))), pattern(path)


def test_an_object_in_the_place_of_a_text_does_not_survive():
    for name, obj, path in leaves():
        if name not in IDENTITY:
            assert "CANARY" not in "".join(written(with_value(obj, path, {"name": "CANARY", "CANARY": 1}))), name
            assert "CANARY" not in "".join(written(with_value(obj, path, ["CANARY"]))), name


@pytest.mark.parametrize("image", ["u:CANARY@registry.example/a:1", "https://registry.example/a?CANARY"])
def test_credentials_in_an_image_do_not_survive(image):
    path = ("spec", "predictor", "containers", 0, "image")
    assert "CANARY" not in "".join(written(with_value(ISVC, path, image)))


# --- the digest -----------------------------------------------------------------------------------------------------


def digest(obj: Any) -> str:
    return digest_of(reduce_object(obj))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "predictor", "model", "storageUri"), "s3://models/other"),
        (("spec", "predictor", "model", "runtime"), "other"),
        (("spec", "predictor", "model", "modelFormat", "name"), "onnx"),
        (("spec", "predictor", "minReplicas"), 3),
        (("spec", "predictor", "canaryTrafficPercent"), 20),
        (("spec", "predictor", "containers", 0, "image"), "registry.example/c:2"),
        (("spec", "predictor", "labels"), {}),
        (("spec", "transformer"), None),
        (("metadata", "labels", PREFIX + "registered-model-id"), "2"),
        (("metadata", "labels"), {**METADATA["labels"], PREFIX + "inference-service-id": "7"}),
        (("metadata", "labels", "modelregistry.opendatahub.io/model-version-id"), "4"),
        (("metadata", "annotations", "serving.kserve.io/stop"), "false"),
        (("metadata", "annotations", "modelregistry.kubeflow.org/url"), "http://h.example/z"),
        (("metadata", "deletionTimestamp"), ""),
        (("status", "url"), "http://other.example"),
        (("status", "address", "url"), "http://other.local"),
        (("status", "addresses", 0, "url"), "http://other.local"),
        (("status", "conditions", 0, "status"), "False"),
        (("status", "conditions"), [{"type": "Ready", "status": "True"}, {"type": "Stopped", "status": "True"}]),
        (("status", "modelStatus", "transitionStatus"), "BlockedByFailedLoad"),
        (("status", "modelStatus", "transitionStatus"), "InvalidSpec"),
        (("status", "deploymentMode"), "Knative"),
        (("status", "clusterServingRuntimeName"), "other"),
    ],
)
def test_the_digest_changes_with_what_matters(path, value):
    assert digest(with_value(ISVC, path, value)) != digest(ISVC)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "resourceVersion"), "42"),
        (("metadata", "generation"), 3),
        (("metadata", "creationTimestamp"), "2027-01-01T00:00:00Z"),
        (("metadata", "finalizers"), ["f", "g"]),
        (("metadata", "managedFields"), []),
        (("metadata", "labels", "team"), "other"),
        (("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), "{}"),
        (("spec", "predictor", "containers", 0, "env"), []),
        (("spec", "predictor", "model", "args"), []),
        (("spec", "predictor", "labels", "team"), "other"),
        (("spec", "predictor", "model", "storageUri"), "s3://models/iris?signature=other"),
        (("status", "observedGeneration"), 3),
        (("status", "conditions", 0, "reason"), "other"),
        (("status", "conditions", 0, "message"), "other"),
        (("status", "conditions", 0, "lastTransitionTime"), "other"),
        (("status", "modelStatus", "transitionStatus"), "InProgress"),
        (("status", "modelStatus", "states", "targetModelState"), "Loading"),
        (("status", "modelStatus", "states", "activeModelState"), ""),
        (("status", "modelStatus", "copies", "totalCopies"), 2),
        (("status", "components"), {}),
        (("status", "servingRuntimeName"), "shadowed by the other one"),
    ],
)
def test_the_digest_ignores_the_rest(path, value):
    assert digest(with_value(ISVC, path, value)) == digest(ISVC)


def test_another_condition_does_not_change_the_digest():
    more = [*STATUS["conditions"], {"type": "IngressReady", "status": "False"}]
    assert digest(with_value(ISVC, ("status", "conditions"), more)) == digest(ISVC)


def test_the_digest_does_not_depend_on_the_order_of_keys():
    turned = {key: ISVC[key] for key in reversed(ISVC)}
    turned["metadata"] = {key: METADATA[key] for key in reversed(METADATA)}
    for maps in ("labels", "annotations"):
        turned["metadata"][maps] = dict(reversed(METADATA[maps].items()))
    assert digest(turned) == digest(ISVC)


def test_the_digest_names_its_version():
    assert re.fullmatch(r"v1:[0-9a-f]{64}", digest(ISVC))


def test_labels_under_a_prefix_of_ones_own_count():
    obj = with_value(ISVC, ("metadata", "labels"), {"models.example.com/registered-model-id": "1"})
    other = with_value(ISVC, ("metadata", "labels"), {"models.example.com/registered-model-id": "2"})
    prefixes = ("models.example.com/",)
    first, second = (reduce_object(each, prefixes) for each in (obj, other))
    assert first["metadata"]["labels"] == {"models.example.com/registered-model-id": "1"}
    assert digest_of(first, prefixes) != digest_of(second, prefixes)


def test_three_of_ten_modifications_in_real_streams_are_relevant():
    modified = relevant = 0
    for story in stories():
        last: dict[str, str] = {}
        for kind, obj in watch_events(story):
            uid, now = obj["metadata"]["uid"], digest(obj)
            if kind == "MODIFIED":
                modified += 1
                relevant += last[uid] != now
            last[uid] = now
    assert (relevant, modified) == (352, 1170)


# --- odd objects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [7, -1, 1.5, True, None, "x", [], {}, [None], [[7]], {"x": None}], ids=repr)
def test_no_odd_value_in_any_place_raises_or_fails_to_decode(odd):
    tried = 0
    for obj, path, _ in places().values():
        changed = with_value(obj, path, odd)
        try:
            reduced = reduce_object(changed)
        except BadEventError:
            assert path in {(), ("metadata",)} or pattern(path) in IDENTITY
            continue
        tried += 1
        assert digest_of(reduced).startswith("v1:")
        for form in (reduced, truncate(reduced)):
            msgspec.json.decode(msgspec.json.encode(form), type=ReducedObject)
    assert tried > 500


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (None, "without metadata"),
        ([], "without metadata"),
        ({}, "without metadata"),
        ({"metadata": "x"}, "without metadata"),
        ({"metadata": {}}, "lacks metadata.name, namespace, resourceVersion, uid"),
        ({"metadata": {**METADATA, "uid": ""}}, "object team-a/iris lacks metadata.uid"),
        ({"metadata": {**METADATA, "uid": 7}}, "object team-a/iris lacks metadata.uid"),
        ({"metadata": {**METADATA, "resourceVersion": "x"}}, "resourceVersion 'x'"),
    ],
)
def test_an_object_without_identity_is_refused_with_what_it_lacks(raw, words):
    with pytest.raises(BadEventError, match=re.escape(words)):
        reduce_object(raw)


def test_reducing_what_is_reduced_changes_nothing():
    for obj in (ISVC, LLMISVC, *every_object()):
        reduced = reduce_object(obj)
        again = reduce_object(reduced)
        again["metadata"]["hasAnnotations"] = reduced["metadata"]["hasAnnotations"]
        assert again == reduced


def test_whether_there_are_foreign_annotations_is_kept():
    bare = {**ISVC, "metadata": {**METADATA, "annotations": {}}}
    foreign = {**ISVC, "metadata": {**METADATA, "annotations": {"a.example/b": "c"}}}
    assert [reduce_object(obj)["metadata"]["hasAnnotations"] for obj in (bare, foreign)] == [False, True]
    assert reduce_object(foreign)["metadata"]["annotations"] == {}


# --- objects that are too large -------------------------------------------------------------------------------------

HUGE = 1_200_000


def many(count: int, value: Any) -> list[Any]:
    return [value] * count


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "predictor", "containers"), many(20_000, CONTAINER), id="containers"),
        pytest.param(("spec", "canary"), many(500, {"trafficPercent": 1, "predictor": A_COMPONENT}), id="canaries"),
        pytest.param(("spec", "predictor", "storageUris"), many(20_000, {"uri": "s3://" + "x" * 60}), id="URIs"),
        pytest.param(("spec", "predictor", "model", "storageUri"), "s3://" + "x" * HUGE, id="a long URI"),
        pytest.param(("spec", "predictor", "model", "runtime"), "雪" * (HUGE // 3), id="a long name in Chinese"),
        pytest.param(("spec", "predictor", "name"), "\x01" * HUGE, id="control characters"),
        pytest.param(("spec", "predictor", "labels"), {f"{PREFIX}{n}": "x" * 63 for n in range(12_000)}, id="presets"),
        pytest.param(("spec", "baseRefs"), many(1200, {"name": "雪" * 1000}), id="references"),
        pytest.param(
            ("metadata", "labels"),
            {**METADATA["labels"], **{f"{PREFIX}{n}": "x" * 63 for n in range(12_000)}},
            id="labels",
        ),
        pytest.param(
            ("metadata", "annotations"),
            {**METADATA["annotations"], **{f"{PREFIX}{n}": "雪" * 1024 for n in range(400)}},
            id="annotations, before the one that stops",
        ),
        pytest.param(
            ("metadata", "annotations"),
            {**METADATA["annotations"], "serving.kserve.io/x": "x" * HUGE},
            id="a long annotation",
        ),
        pytest.param(
            ("status", "conditions"),
            [*many(1200, {"type": "Other", "status": "False", "reason": "雪" * 1000}), *STATUS["conditions"]],
            id="conditions, before Ready",
        ),
        pytest.param(("status", "addresses"), many(1200, {"url": "http://" + "雪" * 1000}), id="addresses"),
    ],
)
def test_a_huge_object_fits_when_truncated_and_keeps_what_decides(path, value):
    huge = reduce_object(with_value(ISVC if path[1] != "baseRefs" else LLMISVC, path, value))
    encoded = msgspec.json.encode(truncate(huge))
    assert len(encoded) <= 64 * 1024
    small, whole = msgspec.json.decode(encoded, type=ReducedObject), msgspec.convert(huge, ReducedObject)
    assert small.metadata.labels[PREFIX + "registered-model-id"] == "1"
    assert small.metadata.annotations["serving.kserve.io/stop"] == "true"
    assert small.metadata.deletion_timestamp == whole.metadata.deletion_timestamp
    for condition in ("Ready", "Stopped", "PredictorReady"):
        assert small.status.condition(condition).status == whole.status.condition(condition).status
    assert len(small.spec.components) == len(whole.spec.components)
    assert small.status.model_status == whole.status.model_status
    assert small.status.deployment_mode == whole.status.deployment_mode
    assert small.kind == whole.kind


@pytest.mark.parametrize("obj", [ISVC, LLMISVC], ids=["isvc", "llmisvc"])
def test_truncating_an_object_of_ordinary_size_takes_nothing_that_decides(obj):
    reduced = reduce_object(obj)
    small, whole = (msgspec.convert(form, ReducedObject) for form in (truncate(reduced), reduced))
    assert small.spec == whole.spec
    assert small.status.model_status == whole.status.model_status
    assert (small.status.url, small.status.address) == (whole.status.url, whole.status.address)
    assert small.status.addresses[:1] == whole.status.addresses[:1]
    assert small.metadata.labels.items() >= {PREFIX + "registered-model-id": "1"}.items()
