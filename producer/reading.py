"""From the API server's bytes to items: every byte that a server or a proxy may send is judged here. Pure.

`producer/kube.py` only moves bytes. No item and no message shows the content of a line: it may hold secrets.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from producer.items import (
    Bookmark,
    Gone,
    Item,
    Malformed,
    Observed,
    Page,
    Refused,
    Seen,
    Unidentified,
)
from shared.errors import BadEventError
from shared.objects import Kind, ObjectKey, compare_resource_versions, is_registry_id
from shared.reduce import digest_of, reduce_object

LINE_BYTES_MAX: Final = 8 * 1024 * 1024  # the API server takes objects of about 1.5 MB (etcd's limit)
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_MODEL_LABEL: Final = "registered-model-id"
_MESSAGE_CHARS: Final = 300
_NAME_CHARS: Final = 317  # the longest possible <namespace>/<name>: 63 + 1 + 253
# No API server has more. A subject or headers of many thousand bytes would end the connection to the broker, for good.
_BYTES_MAX: Final = {"name": 253, "namespace": 63, "uid": 2048, "resourceVersion": 2048}
_SHORT_CHARS: Final = 80


class Reader(msgspec.Struct, frozen=True):
    """Turns the API server's JSON into items.

    `prefixes` are those of our labels, the configured one first; `api_version` is the group and version under which the
    kind is read.
    """

    kind: Kind
    prefixes: tuple[str, ...]
    api_version: str

    def line(self, line: bytes) -> Item:
        """Return the item that one line of a watch stream says."""
        event = _event(line)
        if not isinstance(event, _WatchEvent):
            return event
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                found = self.object(event.object)
                if isinstance(found, Unidentified):
                    return found
                return Gone(found) if event.type == "DELETED" else Seen(found)
            case "BOOKMARK":
                return _bookmark(event.object)
            case "ERROR":
                return _refused(event.object)
            case _:
                return Malformed("a watch event of unknown type")

    def page(self, body: bytes) -> Page | Malformed:
        """Return the page that the body of a list answer holds."""
        try:
            answer = msgspec.json.decode(body, type=_List)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Malformed(f"a list answer of {len(body)} bytes is no list")
        except RecursionError:
            return Malformed(f"a list answer of {len(body)} bytes is nested too deeply")
        version = answer.metadata.resource_version
        if not answer.kind.endswith("List") or not _is_version(version):
            return Malformed("a list answer without list kind or resourceVersion")
        return Page(tuple(map(self.object, answer.items or ())), version, answer.metadata.token)

    def object(self, raw: Any) -> Observed | Unidentified:
        """Reduce an object, or say that it cannot be identified."""
        # Items of a list need not repeat what the list says (those of custom resources do).
        told = {"apiVersion": self.api_version, "kind": self.kind.kubernetes_kind}
        try:
            reduced = reduce_object({**told, **raw} if isinstance(raw, Mapping) else raw, self.prefixes)
        except BadEventError as error:
            return Unidentified(_name_of(raw), str(error)[:_MESSAGE_CHARS])
        metadata = reduced["metadata"]
        if too_long := _too_long(metadata):
            return Unidentified(_name_of(raw)[:_SHORT_CHARS], too_long)
        return Observed(
            key=ObjectKey(self.kind, metadata["namespace"], metadata["name"]),
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            digest=digest_of(reduced, self.prefixes),
            model=model_of(metadata["labels"], self.prefixes),
            body=reduced,
        )


def model_of(labels: Mapping[str, str], prefixes: tuple[str, ...]) -> str:
    """Return the registered-model id that the labels name, or an empty text.

    The first prefix that has the label decides, also when its value is no id: on conflict the configured one wins.
    """
    value = next((labels[prefix + _MODEL_LABEL] for prefix in prefixes if prefix + _MODEL_LABEL in labels), "")
    return value if is_registry_id(value) else ""


class LineSplitter:
    """Cuts a byte stream into lines, however it is chunked. Splits before decoding, so no chunk can cut a character.

    Unlike the line readers of HTTP libraries it has a limit, and says so instead of failing.
    """

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []  # of the unfinished line; joined once, so a long line costs linear time
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | Malformed]:
        """Yield each line that `chunk` completes, without its end; empty (keep-alive) lines are left out."""
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            line = b"".join((*self._parts, part)).rstrip(b"\r")
            self._parts, self._size = [], 0
            if len(line) > self._bytes_max:
                yield self._too_long()
            elif line:
                yield line
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > self._bytes_max:
            yield self._too_long()

    def _too_long(self) -> Malformed:
        return Malformed(f"a line is longer than {self._bytes_max} bytes")


class _WatchEvent(msgspec.Struct):
    type: str
    object: dict[str, Any]


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    kind: str
    metadata: _ListMeta
    items: list[Any] | None = None  # an empty list of a Go server may be null


class _Details(msgspec.Struct):
    causes: list[dict[str, Any]] | None = None
    retry_after_s: float | None = msgspec.field(default=None, name="retryAfterSeconds")


class _Status(msgspec.Struct):
    """`metav1.Status`, of which an ERROR event consists."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def _event(line: bytes) -> _WatchEvent | Malformed | Unidentified:
    try:
        return msgspec.json.decode(line, type=_WatchEvent)
    except (msgspec.DecodeError, UnicodeDecodeError):  # a ValidationError is the former, too
        return Malformed(f"a line of {len(line)} bytes is no watch event")
    except RecursionError:  # the API server takes ten times the depth that Python does
        return Unidentified("(unknown)", f"an object of {len(line)} bytes is nested too deeply")


def _bookmark(raw: dict[str, Any]) -> Bookmark | Malformed:
    metadata = raw.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not _is_version(version):
        return Malformed("a bookmark without resourceVersion")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    ends = isinstance(annotations, dict) and annotations.get(INITIAL_EVENTS_END) == "true"
    return Bookmark(version, ends)


def _refused(raw: dict[str, Any]) -> Refused | Malformed:
    try:
        status = msgspec.convert(raw, _Status)
    except msgspec.ValidationError:
        return Malformed("an ERROR event that is no Status")
    details = status.details or _Details()
    return Refused(
        code=status.code,
        reason=status.reason,
        message=" ".join(status.message.split())[:_MESSAGE_CHARS],
        causes=tuple(str(cause.get("reason")) for cause in details.causes or ()),
        retry_after_s=details.retry_after_s,
        in_stream=True,
    )


def _is_version(text: str) -> bool:
    try:
        compare_resource_versions(text, text)
    except BadEventError:
        return False
    return len(text) <= _BYTES_MAX["resourceVersion"]


def _too_long(metadata: Mapping[str, str]) -> str:
    """Return what of an object's identity is longer than it can be; empty when nothing is."""
    for field, bytes_max in _BYTES_MAX.items():
        size = len(metadata[field].encode())
        if size > bytes_max:
            return f"its metadata.{field} has {size} bytes, more than the {bytes_max} that there can be"
    return ""


def _name_of(raw: Any) -> str:
    """Return what name an object has, for a person to find it."""
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "(no metadata)"
    parts = [part for part in (metadata.get("namespace"), metadata.get("name")) if isinstance(part, str) and part]
    return "/".join(parts)[:_NAME_CHARS] or "(no name)"
