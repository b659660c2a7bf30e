"""Decode the protobuf bodies that kubectl sends for a few built-in kinds. Pure.

`kubectl create namespace` and `kubectl create configmap` send protobuf and nothing else. Everything else that people
do with kubectl here goes as JSON, so only these two kinds are known, and only the fields that a person can give.
Field numbers: `generated.proto` of k8s.io/api/core/v1 and k8s.io/apimachinery.
"""

from collections.abc import Iterator

from sandbox.cluster.status import Obj, unsupported_media_type

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_METADATA = {1: "name", 2: "generateName", 3: "namespace"}
_METADATA_MAPS = {11: "labels", 12: "annotations"}
_KINDS = ("Namespace", "ConfigMap")


def decode(body: bytes) -> Obj:
    """Return the object in a protobuf body.

    Raises ApiError 415 for a kind that is not known here, ValueError for what is no protobuf.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("no Kubernetes protobuf: the magic number is missing")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    type_meta = dict(_fields(envelope[1]))
    api_version, kind = type_meta[1].decode(), type_meta[2].decode()
    if kind not in _KINDS:
        raise unsupported_media_type(f"application/json, application/yaml (protobuf only for {', '.join(_KINDS)})")
    obj: Obj = {"apiVersion": api_version, "kind": kind, "metadata": {}}
    for number, value in _fields(envelope.get(2, b"")):
        if number == 1:
            obj["metadata"] = _metadata(value)
        elif number == 2 and kind == "ConfigMap":
            obj.setdefault("data", {}).update([_pair(value)])
    return obj


def _metadata(data: bytes) -> Obj:
    metadata: Obj = {}
    for number, value in _fields(data):
        if number in _METADATA and value:
            metadata[_METADATA[number]] = value.decode()
        elif number in _METADATA_MAPS:
            metadata.setdefault(_METADATA_MAPS[number], {}).update([_pair(value)])
    return metadata


def _pair(data: bytes) -> tuple[str, str]:
    entry = dict(_fields(data))
    return entry.get(1, b"").decode(), entry.get(2, b"").decode()


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of length-delimited type; numbers (varints) are skipped, other wire types do not occur."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        value, position = _varint(data, position)
        if key & 7 == 2:
            yield key >> 3, data[position : position + value]
            position += value
        elif key & 7:
            raise ValueError(f"wire type {key & 7} is not expected in a Kubernetes object")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("the protobuf ends in the middle of a number")
        byte = data[position]
        result |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return result, position
