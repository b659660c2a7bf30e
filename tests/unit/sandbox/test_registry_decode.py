"""Request bodies to fields: the refusals in the server's words, and what is let through."""

import json

import pytest

from sandbox.registry.decode import decode_body, map_ids, map_properties, shape
from sandbox.registry.errors import ApiError
from sandbox.registry.kinds import INFERENCE_SERVICE, MODEL_ARTIFACT, MODEL_VERSION, REGISTERED_MODEL


def decode(kind, form, value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return decode_body(raw, shape(kind, form), lambda missing: missing[0])


def mismatch(kind, field, wanted):
    return f"json: cannot unmarshal {kind} into Go struct field RegisteredModelUpdate.{field} of type {wanted}"


@pytest.mark.parametrize(("raw", "kind"), [(b'"x"', "string"), (b"true", "bool"), (b"5", "number"), (b"[]", "array")])
def test_a_body_that_is_no_object_is_refused(raw, kind):
    with pytest.raises(ApiError) as caught:
        decode(REGISTERED_MODEL, "Update", raw)
    refusal = f"json: cannot unmarshal {kind} into Go value of type openapi.RegisteredModelUpdate"
    assert (caught.value.status, caught.value.message) == (400, refusal)


NOT_A_DOUBLE = (
    "failed to unmarshal MetadataValue as MetadataDoubleValue: json: cannot unmarshal string "
    "into Go struct field MetadataDoubleValue.double_value of type float64"
)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"owner": {}}, mismatch("object", "owner", "string")),
        ({"tasks": "x"}, mismatch("string", "tasks", "[]string")),
        ({"tasks": [5]}, mismatch("number", "tasks", "string")),
        ({"customProperties": []}, mismatch("array", "customProperties", "map[string]openapi.MetadataValue")),
        ({"foo": 1, "owner": 5}, 'json: unknown field "foo"'),
        ({"owner": 5, "foo": 1}, mismatch("number", "owner", "string")),
        ({"foo": 1, "state": "GONE"}, "GONE is not a valid RegisteredModelState"),
        ({"customProperties": {"d": {"metadataType": "MetadataDoubleValue", "double_value": "x"}}}, NOT_A_DOUBLE),
    ],
)
def test_the_first_wrong_field_is_named_unless_an_enum_ends_the_reading(value, complaint):
    with pytest.raises(ApiError) as caught:
        decode(REGISTERED_MODEL, "Update", value)
    assert (caught.value.status, caught.value.message) == (400, complaint)


def test_a_null_for_a_required_field_leaves_it_missing():
    with pytest.raises(ApiError) as caught:
        decode(MODEL_VERSION, "Create", {"name": None, "registeredModelId": "1"})
    assert (caught.value.status, caught.value.message) == (422, "required field 'name' is zero value.")


def test_which_missing_field_is_named_is_the_callers_choice():
    with pytest.raises(ApiError, match="'servingEnvironmentId'"):
        decode_body(b"{}", shape(INFERENCE_SERVICE, "Create"), lambda missing: missing[-1])


def test_fields_are_found_in_any_case_and_the_last_one_counts():
    body = decode(REGISTERED_MODEL, "Create", b'{"NAME":"a","name":"b","Owner":"ana"}')
    assert body == {"name": "b", "owner": "ana", "state": "LIVE"}


def test_lists_of_texts_are_read():
    assert decode(REGISTERED_MODEL, "Update", {"tasks": ["a", "b"]})["tasks"] == ["a", "b"]


def test_the_fields_of_an_artifact_are_not_checked():
    assert decode(MODEL_ARTIFACT, "union", {"foo": 1, "uri": "s3://b"}) == {"uri": "s3://b", "state": "UNKNOWN"}


def test_a_property_ignores_other_fields_and_null():
    value = {"metadataType": "MetadataBoolValue", "BOOL_VALUE": True, "bool_value": None, "more": []}
    body = decode(REGISTERED_MODEL, "Update", {"customProperties": {"k": value}})
    assert body["customProperties"] == {"k": {"metadataType": "MetadataBoolValue", "bool_value": True}}


def test_ids_are_stored_without_zeros_and_signs():
    assert map_ids(INFERENCE_SERVICE, {"registeredModelId": "007", "modelVersionId": "+4", "runtime": None}) == {
        "registeredModelId": "7",
        "modelVersionId": "4",
    }


@pytest.mark.parametrize(
    ("type_", "field", "value", "complaint"),
    [
        ("MetadataProtoValue", "proto_value", "x", "metadataType not found for k: {<nil> <nil> <nil> 0x"),
        ("MetadataStructValue", "struct_value", "MQ==", "unable to decode"),
        ("MetadataStructValue", "struct_value", "e30x!", "illegal base64 data at input byte 4 for key k"),
        ("MetadataStructValue", "struct_value", "ew==", "unable to decode unexpected EOF for key k"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(type_, field, value, complaint):
    with pytest.raises(ApiError) as caught:
        map_properties({"k": {"metadataType": type_, field: value}})
    assert caught.value.status == 400
    assert complaint in caught.value.message


def test_a_struct_is_stored_as_the_json_that_it_is_read_as():
    stored = map_properties({"k": {"metadataType": "MetadataStructValue", "struct_value": "eyAiYSIgOiAxIH0="}})
    assert stored["k"]["struct_value"] == '{"a":1}'
