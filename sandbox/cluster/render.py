"""How objects leave the server: whole, metadata only, or as table rows; single, in lists, in watch events. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from sandbox.cluster import table
from sandbox.cluster.listing import Page
from sandbox.cluster.resources import Kind
from sandbox.cluster.status import ApiError, Obj
from sandbox.cluster.store import Entry, encode

Form = Literal["object", "metadata", "table"]
_META = "meta.k8s.io/v1"


def negotiate(accept: str) -> Form:
    """Choose what an Accept header prefers; raises ApiError 406 when it takes no JSON."""
    for media_range in (accept or "*/*").split(","):
        media, *parameters = (part.strip() for part in media_range.split(";"))
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media not in {"application/json", "application/*", "*/*"}:
            continue
        shape = wanted.get("as", "")
        if shape == "Table":
            return "table"
        if shape.startswith("PartialObjectMetadata"):
            return "metadata"
        if not shape:
            return "object"
    message = "only the following media types are accepted: application/json"
    raise ApiError(406, "NotAcceptable", message)


@dataclass(slots=True)
class Renderer:
    """Renders the entries of one kind for one request."""

    kind: Kind
    version: str
    form: Form
    now: Callable[[], datetime]
    whole_rows: bool = False
    """Table rows carry the whole object (`includeObject=Object`), not only its metadata."""
    _titled: bool = field(default=False, init=False)

    def one(self, entry: Entry) -> bytes:
        if self.form == "object":
            return self._raw(entry)
        return encode(self._metadata(entry) if self.form == "metadata" else self._table([entry], {}))

    def event(self, type_: str, entry: Entry) -> bytes:
        """Render one line of a watch, line end included."""
        if self.form == "object":
            return event_line(type_, self._raw(entry))
        body = self._metadata(entry) if self.form == "metadata" else self._table([entry], self._list_metadata(entry))
        return event_line(type_, encode(body))

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        metadata: Obj = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body: Obj = {"apiVersion": self.kind.api_version(self.version), "kind": self.kind.kind, "metadata": metadata}
        if self.form == "metadata":
            body |= {"apiVersion": _META, "kind": "PartialObjectMetadata"}
        elif self.form == "table":
            row = {"cells": [], "object": {"apiVersion": _META, "kind": "PartialObjectMetadata", "metadata": metadata}}
            body = {"apiVersion": _META, "kind": "Table", "metadata": {}, "columnDefinitions": None, "rows": [row]}
        return event_line("BOOKMARK", encode(body))

    def page(self, page: Page) -> bytes:
        metadata: Obj = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self.form == "table":
            return encode(self._table(page.entries, metadata))
        if self.form == "metadata":
            items = [encode(self._metadata(entry)) for entry in page.entries]
            return _list(_META, "PartialObjectMetadataList", items, metadata)
        items = [self._item(entry) for entry in page.entries]
        return _list(self.kind.api_version(self.version), self.kind.kind + "List", items, metadata)

    def _raw(self, entry: Entry) -> bytes:
        if self.version == self.kind.stored:
            return entry.raw
        stored, asked = (self.kind.api_version(version).encode() for version in (self.kind.stored, self.version))
        return entry.raw.replace(b'"apiVersion":"%s"' % stored, b'"apiVersion":"%s"' % asked, 1)

    def _item(self, entry: Entry) -> bytes:
        if self.kind.custom:
            return self._raw(entry)
        obj = entry.decode()  # items of built-in kinds say neither kind nor version
        del obj["kind"], obj["apiVersion"]
        return encode(obj)

    def _metadata(self, entry: Entry) -> Obj:
        return {"apiVersion": _META, "kind": "PartialObjectMetadata", "metadata": entry.decode()["metadata"]}

    def _list_metadata(self, entry: Entry) -> Obj:
        return {"resourceVersion": str(entry.version)}

    def _table(self, entries: list[Entry], metadata: Obj) -> Obj:
        columns, now = self.kind.versions[self.version], self.now()
        rows = []
        for entry in entries:
            obj = entry.decode()
            shown = obj if self.whole_rows else self._metadata(entry)
            rows.append({"cells": table.cells(columns, obj, now), "object": shown})
        # A watch names its columns once.
        titles = None if self._titled else table.column_definitions(columns)
        self._titled = True
        return {"apiVersion": _META, "kind": "Table", "metadata": metadata, "columnDefinitions": titles, "rows": rows}


def event_line(type_: str, body: bytes) -> bytes:
    """Return one line of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)


def _list(api_version: str, kind: str, items: list[bytes], metadata: Obj) -> bytes:
    head = b'{"apiVersion":"%s","items":[' % api_version.encode()
    return head + b",".join(items) + b'],"kind":"%s","metadata":%s}\n' % (kind.encode(), encode(metadata))
