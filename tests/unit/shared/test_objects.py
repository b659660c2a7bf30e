"""Kinds, resourceVersions, registry ids, and what decodes as the reduced form."""

import msgspec
import pytest

from shared.errors import BadEventError
from shared.objects import (
    Address,
    Condition,
    Kind,
    ObjectKey,
    ReducedObject,
    Spec,
    Status,
    compare_resource_versions,
    is_registry_id,
)


@pytest.mark.parametrize(
    ("kind", "kubernetes_kind", "plural"),
    [
        (Kind.ISVC, "InferenceService", "inferenceservices"),
        (Kind.LLMISVC, "LLMInferenceService", "llminferenceservices"),
    ],
)
def test_a_kind_knows_its_names(kind, kubernetes_kind, plural):
    assert (kind.kubernetes_kind, kind.plural) == (kubernetes_kind, plural)


def test_a_key_reads_as_kind_namespace_name():
    assert str(ObjectKey(Kind.LLMISVC, "team-a", "chat")) == "llmisvc/team-a/chat"


@pytest.mark.parametrize(
    ("a", "b", "order"),
    [
        pytest.param("10", "10", 0, id="equal"),
        pytest.param("9", "10", -1, id="as numbers, not as texts"),
        pytest.param("10", "9", 1, id="greater"),
        pytest.param("123", "124", -1, id="same length"),
        pytest.param("9" * 40, "1" + "0" * 40, -1, id="longer than any machine integer"),
        pytest.param("18446744073709551616", "18446744073709551615", 1, id="past uint64"),
    ],
)
def test_resource_versions_compare_as_numbers_of_any_length(a, b, order):
    assert compare_resource_versions(a, b) == order


@pytest.mark.parametrize("text", ["", "0", "007", "-1", "+1", "1.5", "1e3", " 1", "1 ", "x", "٣", "1_0"])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_decimal_number_is_no_resource_version(text, place):
    pair = ["5", "5"]
    pair[place] = text
    with pytest.raises(BadEventError, match="not a decimal number"):
        compare_resource_versions(*pair)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("1", True),
        ("2147483647", True),
        ("2147483648", False),
        ("99999999999", False),
        ("0", False),
        ("01", False),
        ("+1", False),
        ("-1", False),
        ("", False),
        (" 1", False),
        ("1a", False),
        ("٣", False),
        ("mnist", False),
    ],
)
def test_an_id_of_the_registry_is_a_positive_int32_without_decoration(text, valid):
    assert is_registry_id(text) is valid


def test_a_condition_that_is_not_there_is_empty():
    status = Status(conditions=(Condition("Ready", "True"),))
    assert status.condition("Ready").status == "True"
    assert status.condition("Stopped") == Condition("Stopped", "", "")


def test_components_are_those_that_are_there():
    decoded = msgspec.json.decode(b'{"predictor": {}, "explainer": {}}', type=Spec)
    assert decoded.components == (decoded.predictor, decoded.explainer)
    assert Spec().components == ()


def test_the_reduced_form_decodes_by_the_names_of_the_api():
    decoded = msgspec.json.decode(
        b"""{"kind": "InferenceService",
             "metadata": {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "5",
                          "deletionTimestamp": "t", "hasAnnotations": true, "someday": 1},
             "spec": {"predictor": {"model": {"storageUri": "s3://x", "modelFormat": {"name": "sk"}}}},
             "status": {"addresses": [{"url": "http://x"}], "clusterServingRuntimeName": "r",
                        "modelStatus": {"transitionStatus": "UpToDate", "states": {"activeModelState": "Loaded"},
                                        "copies": {}}}}""",
        type=ReducedObject,
    )
    assert decoded.metadata.resource_version == "5"
    assert decoded.metadata.has_annotations
    assert decoded.spec.predictor is not None
    assert decoded.spec.predictor.model.storage_uri == "s3://x"
    assert decoded.status.addresses == (Address("http://x"),)
    assert decoded.status.model_status.copies is not None
    assert decoded.status.model_status.copies.total_copies == 0
