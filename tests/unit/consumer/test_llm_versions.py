"""An LLMInferenceService says the same in both versions of its API: to the digest, and to the record.

Where the versions differ: v1alpha1 has a criticality for a model and for each LoRA adapter, which v1alpha2 keeps in
annotations of an internal prefix; v1alpha2 says where an address comes from. Nothing else that we read has changed.
"""

import copy
from typing import Any

import msgspec
import pytest

from consumer.freshness import Freshness
from consumer.observation import Observation, Wanted, observe_live, want
from shared.objects import Kind, Metadata, ObjectKey, ReducedObject
from shared.reduce import digest_of, reduce_object, truncate
from tests.unit.shared.captured import watch_events

PREFIX = "modelregistry.kubeflow.org/"
CRITICALITY = "internal.serving.kserve.io/model-criticality"
CAPTURED = [obj for _, obj in watch_events("llm-inference-service")]

RICH = {
    "apiVersion": "serving.kserve.io/v1alpha2",
    "kind": "LLMInferenceService",
    "metadata": {
        "name": "chat",
        "namespace": "llm",
        "uid": "5a1e",
        "resourceVersion": "41",
        "labels": {PREFIX + "registered-model-id": "7", PREFIX + "model-version-id": "8"},
        "annotations": {CRITICALITY: "Critical"},
    },
    "spec": {
        "model": {"uri": "hf://Qwen/Qwen2.5-7B-Instruct", "name": "Qwen/Qwen2.5-7B-Instruct"},
        "replicas": 3,
        "baseRefs": [{"name": "base"}],
        "router": {"route": {}, "gateway": {}, "scheduler": {}},
        "template": {"containers": [{"name": "main", "image": "vllm/vllm-openai:v0.8.5"}]},
    },
    "status": {
        "url": "https://chat.example.com/llm",
        "address": {"url": "https://old.example.com"},
        "addresses": [
            {"url": "https://chat.example.com", "name": "gateway-external", "origin": {"kind": "Gateway"}},
            {"url": "http://chat.llm.svc.cluster.local"},
        ],
        "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "m"}],
    },
}


def as_v1alpha1(obj: Any) -> Any:
    """Return what KServe's conversion makes of an object in v1alpha2."""
    older = copy.deepcopy(obj) | {"apiVersion": "serving.kserve.io/v1alpha1"}
    for address in older.get("status", {}).get("addresses", ()):
        address.pop("origin", None)
    annotations = older["metadata"].get("annotations", {})
    if criticality := annotations.pop(CRITICALITY, None):
        older["spec"]["model"]["criticality"] = criticality
    return older


def wanted(raw: Any) -> Wanted:
    """Return what the registry should say of an object that the consumer has read."""
    name, namespace, uid = (raw["metadata"][field] for field in ("name", "namespace", "uid"))
    known = Observation(
        key=ObjectKey(Kind.LLMISVC, namespace, name),
        uid=uid,
        freshness=Freshness(1, "1", deleted=False),
        digest="",
        models=(),
        time="2026-11-30T10:00:00Z",
        obj=ReducedObject("LLMInferenceService", Metadata(name, namespace, uid, "1")),
    )
    return want(observe_live(known, raw, PREFIX), PREFIX)


def test_the_versions_differ_in_the_example():
    older = as_v1alpha1(RICH)
    assert older["spec"]["model"]["criticality"] == "Critical"
    assert older["status"]["addresses"] != RICH["status"]["addresses"]


@pytest.mark.parametrize("form", [reduce_object, lambda obj: truncate(reduce_object(obj))], ids=["whole", "truncated"])
def test_the_reduced_form_differs_in_the_name_of_the_version_only(form):
    for obj in (RICH, *CAPTURED):
        newer, older = form(obj), form(as_v1alpha1(obj))
        assert older["apiVersion"] == "serving.kserve.io/v1alpha1"
        del newer["metadata"]["hasAnnotations"], older["metadata"]["hasAnnotations"]  # the internal one counts
        assert {**older, "apiVersion": ""} == {**newer, "apiVersion": ""}


def test_the_digest_is_that_of_both_versions():
    for obj in (RICH, *CAPTURED):
        assert digest_of(reduce_object(obj)) == digest_of(reduce_object(as_v1alpha1(obj)))


def test_the_record_says_the_same_whichever_version_was_read():
    for obj in (RICH, *CAPTURED):
        assert wanted(obj) == wanted(as_v1alpha1(obj))


@pytest.mark.parametrize("version", [lambda obj: obj, as_v1alpha1], ids=["v1alpha2", "v1alpha1"])
def test_model_address_and_readiness_are_read(version):
    seen = wanted(version(RICH))
    assert (seen.model, seen.version, seen.storage_uri) == ("7", "8", "hf://Qwen/Qwen2.5-7B-Instruct")
    assert (seen.url, seen.ready) == ("https://chat.example.com", True)


@pytest.mark.parametrize("version", [lambda obj: obj, as_v1alpha1], ids=["v1alpha2", "v1alpha1"])
def test_the_reduced_form_decodes(version):
    decoded = msgspec.convert(reduce_object(version(RICH)), ReducedObject)
    assert (decoded.spec.model.uri, len(decoded.status.addresses)) == ("hf://Qwen/Qwen2.5-7B-Instruct", 2)
