"""From a file of watch events to the lines of a capture: so that a person can report a bug with kubectl alone. Pure.

Three spellings are understood, also mixed, as a stream of JSON documents one after the other:

    kubectl get isvc -A -w -o json --output-watch-events     {"type": "ADDED", "object": {...}}, over many lines
    kubectl get isvc -A -o json [-w]                         a List, or the objects themselves
    tests/captures/*.jsonl                                   {"received": "...", "event": {...}}, one a line

Nothing of an object is passed on but its reduced form, and no message shows the content of a document.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from producer.items import Observed, Unidentified
from producer.reading import INITIAL_EVENTS_END, Reader
from replay.capture import Captured, CaptureError, CutError, Facts
from replay.recording.publishing import Moment, Named, Publishing
from shared.naming import NamingSettings
from shared.objects import Kind
from shared.reduce import REGISTRY_PREFIXES
from shared.subjects import Subjects

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024  # a List of `kubectl get -o json` is one document
_GROUP: Final = "serving.kserve.io/"
_KINDS: Final = {kind.kubernetes_kind: kind for kind in Kind}
# A JSON text has no line end inside a string, so a line can be looked at for itself.
_MARKS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}]')
_COMPLAINT: Final = re.compile(rb"\s*(?:error:|Error from server|Unable to connect to the server)")  # on 2>&1
_TIMES_OF: Final = ("creationTimestamp", "deletionTimestamp")

Tell = Callable[[str], None]


class WatchFile:
    """One file. `tell` takes a sentence for each thing that was passed over; `created` is the time where none is told.

    The models and versions that labels name are told as facts, each before the first event that needs it: whether they
    exist is not known from a watch.
    """

    def __init__(self, subjects: Subjects, cluster_id: str, created: datetime, tell: Tell) -> None:
        self._publishing = Publishing(subjects, cluster_id)
        self._named = Named()
        self._created = created
        self._tell = tell
        self._readers = {kind: _reader(kind) for kind in Kind}
        self._time = _Clock()
        self._listing = True  # while nothing but ADDED has come, it is the list with which a watch begins
        self.objects_seen = 0

    def lines(self, source: Iterable[bytes]) -> Iterator[Facts | Captured]:
        """Yield facts and events; `source` yields the file's lines. Raises CaptureError for what is no watch file."""
        for number, document in documents(source):
            try:
                yield from self._document(_Document.of(document))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise CaptureError(f"the document at line {number} is none of a watch: {_shape(error)}") from error
            except RecursionError:
                self._tell(f"The document at line {number} is nested too deeply: passed over.")

    def _document(self, found: "_Document") -> Iterator[Facts | Captured]:
        if found.request is not None:
            self._listing = "resourceVersion=" not in found.request or "sendInitialEvents=true" in found.request
        if found.received:
            self._time.received(found.received)
        if found.event is not None:
            yield from self._event(found.event.type, found.event.object)
        elif found.type is not None:
            yield from self._event(found.type, found.object)
        elif found.kind is not None and found.kind.endswith("List"):
            for item in found.items or ():
                yield from self._object(item, gone=False)
        elif found.kind is not None and found.metadata is not None:
            whole = {"apiVersion": found.apiVersion, "kind": found.kind, "metadata": found.metadata}
            yield from self._object({**whole, "spec": found.spec, "status": found.status}, gone=False)

    def _event(self, what: str, raw: Any) -> Iterator[Facts | Captured]:
        match what:
            case "ADDED" | "MODIFIED" | "DELETED":
                self._listing = self._listing and what == "ADDED"
                yield from self._object(raw, gone=what == "DELETED")
            case "BOOKMARK":
                self._listing = self._listing and not _ends_list(raw)
            case "ERROR":
                self._tell(f"The server ended the watch: {_status(raw)}. What happened after it is not in the file.")
            case _:
                self._tell(f"A watch event of type {what[:40]!r} was passed over.")

    def _object(self, raw: Any, *, gone: bool) -> Iterator[Facts | Captured]:
        self.objects_seen += 1
        kind = _kind_of(raw)
        if kind is None:
            self._tell("An object that is no InferenceService and no LLMInferenceService was passed over.")
            return
        found = self._readers[kind].object(raw)
        if isinstance(found, Unidentified):
            self._tell(f"An object was passed over: {found.name}: {found.why}.")
            return
        for captured in self._changes(found, raw, gone=gone):
            facts = self._named.new(captured)
            if facts is not None:
                yield facts
            yield captured

    def _changes(self, found: Observed, raw: Any, *, gone: bool) -> Iterator[Captured]:
        at = self._time.of(raw) or self._created
        moment = Moment(self._time.text or _text(at), int(at.timestamp()))
        if gone:
            return self._publishing.gone(found, moment)
        return self._publishing.see(found, moment, live=not self._listing)


def captured(
    source: Iterable[bytes], cluster_id: str, cluster: str = "recorded", tell: Tell = lambda _: None
) -> Iterator[Facts | Captured]:
    """Yield facts and events of a watch file with the usual names; see `WatchFile`."""
    subjects = Subjects("isvc", cluster, 16)
    return WatchFile(subjects, cluster_id, datetime.fromtimestamp(0, UTC), tell).lines(source)


def documents(source: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield each JSON document with the number of the line at which it begins, whatever its layout.

    Raises CaptureError for what is no JSON object, and for a document that is too long; CutError at the end of a file
    that stops in the middle of one, and where kubectl says after a document why it ends.
    """
    parts: list[bytes] = []
    depth = size = begun = 0
    for number, line in enumerate(source, start=1):
        begin = 0
        for mark in _MARKS.finditer(line):
            if mark[0] == b"{":
                if depth == 0:
                    _require_blank(line[begin : mark.start()], number, begun)
                    begun, begin = number, mark.start()
                depth += 1
            elif mark[0] == b"}" and depth > 0:
                depth -= 1
                if depth == 0:
                    yield begun, b"".join((*parts, line[begin : mark.end()]))
                    parts, size, begin = [], 0, mark.end()
        if depth == 0:
            _require_blank(line[begin:], number, begun)
            continue
        parts.append(line[begin:])
        size += len(line) - begin
        if size > DOCUMENT_BYTES_MAX:
            raise CaptureError(f"the document at line {begun} is longer than {DOCUMENT_BYTES_MAX} bytes")
    if depth > 0:
        raise CutError(f"the document at line {begun} stops in the middle")


class _Inner(msgspec.Struct):
    type: str
    object: dict[str, Any]


class _Document(msgspec.Struct):
    """Any of the spellings."""

    type: str | None = None
    object: dict[str, Any] | None = None
    received: str | None = None
    event: _Inner | None = None
    request: str | None = None
    kind: str | None = None
    apiVersion: str | None = None  # noqa: N815 - spelt as Kubernetes does
    metadata: dict[str, Any] | None = None
    items: list[Any] | None = None
    spec: Any = None
    status: Any = None

    @classmethod
    def of(cls, document: bytes) -> "_Document":
        return _DOCUMENT.decode(document)


_DOCUMENT: Final = msgspec.json.Decoder(_Document)


class _Clock:
    """When things were seen: as the file says it, else the latest time that an object has told of itself so far."""

    def __init__(self) -> None:
        self.text = ""
        self._received: datetime | None = None
        self._latest: datetime | None = None

    def received(self, text: str) -> None:
        at = _parsed(text)
        if at is not None:
            self._received, self.text = at, text

    def of(self, raw: Any) -> datetime | None:
        if self._received is not None:
            return self._received
        times = [at for text in _times(raw) if (at := _parsed(text)) is not None]
        known = [*times, *([self._latest] if self._latest is not None else [])]
        self._latest = max(known, default=None)
        return self._latest


def _times(raw: Any) -> Iterator[Any]:
    """Yield the times in an object; kubectl leaves managedFields out, conditions are there."""
    metadata, status = _map(raw, "metadata"), _map(raw, "status")
    yield from (metadata.get(name) for name in _TIMES_OF)
    for entry in (*_list(metadata, "managedFields"), *_list(status, "conditions")):
        if isinstance(entry, dict):
            yield entry.get("time") or entry.get("lastTransitionTime")


def _map(raw: Any, name: str) -> dict[str, Any]:
    value = raw.get(name) if isinstance(raw, dict) else None
    return value if isinstance(value, dict) else {}


def _list(raw: dict[str, Any], name: str) -> list[Any]:
    value = raw.get(name)
    return value if isinstance(value, list) else []


def _parsed(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else None


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _reader(kind: Kind) -> Reader:
    return Reader(kind, REGISTRY_PREFIXES, NamingSettings(cluster_name="recorded").api_version(kind))


def _kind_of(raw: Any) -> Kind | None:
    if not isinstance(raw, dict) or not str(raw.get("apiVersion", "")).startswith(_GROUP):
        return None
    return _KINDS.get(str(raw.get("kind")))


def _ends_list(raw: Any) -> bool:
    return _map(_map(raw, "metadata"), "annotations").get(INITIAL_EVENTS_END) == "true"


def _status(raw: Any) -> str:
    """Return code and reason of a Status; not its message, which may quote anything."""
    code, reason = (_map({"": raw}, "").get(name) for name in ("code", "reason"))
    return " ".join(str(part)[:60] for part in (code, reason) if isinstance(part, int | str)) or "no reason given"


def _shape(error: Exception) -> str:
    """Return what msgspec says of a document's form; it quotes names of fields, never values."""
    return str(error)[:200] if isinstance(error, msgspec.DecodeError) else "it is no UTF-8"


def _require_blank(text: bytes, number: int, begun: int) -> None:
    """Raise unless there is nothing between two documents; `begun`: the line of the one before, 0 for none."""
    if begun and _COMPLAINT.match(text):
        raise CutError(f"line {number} is an error of kubectl, and ends it")
    if text.strip(b" \t\r\n\x1e\xef\xbb\xbf"):  # a byte order mark, or the separator of RFC 7464
        raise CaptureError(f"line {number} is no JSON object: is it the output of kubectl with -o json?")
