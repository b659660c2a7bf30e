"""The digest changes with what matters, and with nothing else."""

import re
from typing import Any

import pytest

from shared.reduce import digest_of, reduce_object
from tests.unit.shared.captured import stories, watch_events
from tests.unit.shared.full_objects import ISVC, METADATA, PREFIX, STATUS, with_value


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
