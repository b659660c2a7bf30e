"""Request bodies to fields: strict about unknown names and types, lenient where the server is.

Two steps, as in the server, because their errors differ and come in this order: `decode_body` reads the JSON (unknown
fields, types, enums, required fields), and `map_ids` / `map_properties` turn what was read into what is stored.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec

from sandbox.registry import gojson
from sandbox.registry.errors import ApiError, bad_request
from sandbox.registry.gojson import GoError, Pairs
from sandbox.registry.kinds import FieldType, Kind

Form = Literal["Create", "Update", "", "union"]
"""Bodies of POST (Create) and PATCH (Update), a full record (empty), an artifact with unchecked names (union)."""


class Shape(msgspec.Struct, frozen=True):
    """What a body may hold."""

    kind: Kind
    type_name: str
    by_lower_name: dict[str, str]
    types: dict[str, FieldType]
    required: tuple[str, ...]
    strict: bool


@cache
def shape(kind: Kind, form: Form) -> Shape:
    types = dict(kind.fields if form == "Update" else kind.creatable)
    if form in {"", "union"}:
        types |= {"id": "string", "createTimeSinceEpoch": "string", "lastUpdateTimeSinceEpoch": "string"}
    return Shape(
        kind=kind,
        type_name=kind.go_name + ("" if form == "union" else form),
        by_lower_name={name.lower(): name for name in types},
        types=types,
        required=() if form == "Update" else kind.required,
        strict=form != "union",
    )


def decode_body(raw: bytes, shape: Shape, choose: Callable[[list[str]], str]) -> dict[str, Any]:
    """Read a body. A field that was not sent is missing, one that was null is None; the state has its default.

    `choose` picks which of several missing required fields the error names. Raises ApiError 400 and 422.
    """
    if b"\0" in raw or b"\\u0000" in raw:
        raise ApiError(400, "Request body contains null bytes which are not allowed")
    try:
        value = gojson.decode(raw)
    except GoError as error:
        raise ApiError(400, str(error)) from None
    body: dict[str, Any] = {shape.kind.state: shape.kind.states[0]} if shape.kind.state else {}
    if isinstance(value, Pairs):
        _read_fields(value, shape, body)
    elif value is not None:  # null is an object without fields
        raise ApiError(
            400, f"json: cannot unmarshal {gojson.kind_of(value)} into Go value of type openapi.{shape.type_name}"
        )
    if missing := [field for field in shape.required if not body.get(field)]:
        raise ApiError(422, f"required field '{choose(missing)}' is zero value.", code="Bad Request")
    return body


class _Mismatch(Exception):  # noqa: N818 - never leaves this module
    """A value of the wrong type; the decoder goes on and reports the first one at the end."""


def _read_fields(pairs: Pairs, shape: Shape, body: dict[str, Any]) -> None:
    first_complaint = None
    for key, item in pairs:
        field = key if key in shape.types else shape.by_lower_name.get(key.lower())
        try:
            if field is not None:
                _read_field(field, item, shape, body)
            elif shape.strict and first_complaint is None:
                first_complaint = f"json: unknown field {gojson.quote(key)}"
        except _Mismatch as mismatch:
            first_complaint = first_complaint or str(mismatch)
    if first_complaint:
        raise ApiError(400, first_complaint)


def _read_field(field: str, item: Any, shape: Shape, body: dict[str, Any]) -> None:
    if item is None:
        if field not in shape.required:  # required fields are no pointers in the server: null leaves them alone
            body[field] = None
        return
    match shape.types[field]:
        case "properties":
            pairs = _typed(item, Pairs, shape, field, "map[string]openapi.MetadataValue")
            body[field] = {key: _metadata_value(value) for key, value in pairs}
        case "strings":
            body[field] = [
                _typed(element, str, shape, field, "string") for element in _typed(item, list, shape, field, "[]string")
            ]
        case "state":
            body[field] = _state(item, shape, field)
        case _:
            body[field] = _typed(item, str, shape, field, "string")


def _typed(item: Any, wanted: type[Any], shape: Shape, field: str, go_type: str) -> Any:
    if not isinstance(item, wanted) or (wanted is list and isinstance(item, Pairs)):
        raise _Mismatch(
            f"json: cannot unmarshal {gojson.kind_of(item)} into Go struct field {shape.type_name}.{field} "
            f"of type {go_type}"
        )
    return item


def _state(item: Any, shape: Shape, field: str) -> str:
    """Enums have a decoder of their own: their error ends the decoding at once."""
    try:
        state = str(_typed(item, str, shape, field, "string"))
    except _Mismatch as mismatch:
        raise ApiError(400, str(mismatch)) from None
    if state not in shape.kind.states:
        raise ApiError(400, f"{state} is not a valid {shape.kind.state_type}")
    return state


_METADATA: dict[str, tuple[str, type[Any], str, Any]] = {
    "MetadataBoolValue": ("bool_value", bool, "bool", False),
    "MetadataDoubleValue": ("double_value", float, "float64", 0.0),
    "MetadataIntValue": ("int_value", str, "string", ""),
    "MetadataProtoValue": ("proto_value", str, "string", ""),
    "MetadataStringValue": ("string_value", str, "string", ""),
    "MetadataStructValue": ("struct_value", str, "string", ""),
}


def _metadata_value(item: Any) -> dict[str, Any]:
    """One custom property; empty when its type is missing or unknown, which is refused only by `map_properties`."""
    if item is None:
        return {}
    if not isinstance(item, Pairs):
        raise ApiError(400, "failed to unmarshal JSON into map for the discriminator lookup")
    type_name = dict(item).get("metadataType")
    if not isinstance(type_name, str) or type_name not in _METADATA:
        return {}
    field, wanted, go_type, value = _METADATA[type_name]
    for key, inner in item:
        if key.lower() != field or inner is None:
            continue
        if not isinstance(inner, wanted) or inner in (float("inf"), float("-inf")):
            raise ApiError(
                400,
                f"failed to unmarshal MetadataValue as {type_name}: json: cannot unmarshal {gojson.kind_of(inner)} "
                f"into Go struct field {type_name}.{field} of type {go_type}",
            )
        value = inner
    return {"metadataType": type_name, field: value}


def map_ids(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return the plain fields as they are stored: ids without leading zeros and signs. Raises ApiError 400."""
    stored = {}
    types = kind.creatable
    for field, value in body.items():
        type_ = types.get(field)
        if value is None or type_ in {None, "properties"} or field in {"name", "externalId"}:
            continue
        stored[field] = str(_int32_property(value)) if type_ == "id" else value
    return stored


def _int32_property(value: str) -> int:
    try:
        return gojson.parse_int32(value)
    except GoError as error:
        raise bad_request(f"error setting field Properties: invalid numeric string: {error}") from None


def map_properties(properties: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return custom properties as they are stored and read back. Raises ApiError 400.

    A struct value comes as base64 and is read back as JSON. A PATCH that does not send properties sends the stored ones
    through here again, so such a record refuses every PATCH that does not replace its properties.
    """
    try:
        return {key: _map_property(key, value) for key, value in properties.items()}
    except GoError as error:
        raise bad_request(f"error setting field CustomProperties: bad request: {error}") from None


def _map_property(key: str, value: dict[str, Any]) -> dict[str, Any]:
    try:
        match value.get("metadataType"):
            case "MetadataIntValue":
                return {**value, "int_value": str(_decode_int(value["int_value"]))}
            case "MetadataStructValue":
                return {**value, "struct_value": _decode_struct(value["struct_value"])}
            case None | "MetadataProtoValue":
                members = ["<nil>"] * 6
                if value:
                    members[3] = "0xc0000140a8"  # the address of what was decoded and is refused all the same
                raise GoError(f"metadataType not found for {key}: {{{' '.join(members)}}}")
            case _:
                return value
    except _Undecodable as error:
        raise GoError(f"unable to decode {error} for key {key}") from None


class _Undecodable(Exception):  # noqa: N818 - never leaves this module
    """A property value that cannot be stored."""


def _decode_int(text: str) -> int:
    try:
        return gojson.parse_int32(text)
    except GoError as error:
        raise _Undecodable(f"as int64 invalid numeric string: {error}") from None


def _decode_struct(text: str) -> str:
    try:
        data = gojson.decode_base64(text)
        value = gojson.decode(data)
        if not isinstance(value, Pairs):
            raise GoError(f"proto: syntax error (line 1:1): unexpected {gojson.kind_of(value)}")
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:
        raise _Undecodable(str(error)) from None
