"""What the registry does with a record, and what it says when that fails: the layer between answers and database.

One `Core` serves one request. It reaches the store through `_db`, which is where a faulty database shows: the server
then turns the error into 404 (by id), 400 or 500 (lists and finds), or 500 (creates), and so does this module.
"""

import base64
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import msgspec

from sandbox.registry import filter as filter_query
from sandbox.registry import gojson
from sandbox.registry.decode import map_ids, map_properties
from sandbox.registry.errors import (
    BAD_FILTER,
    ApiError,
    DatabaseError,
    DuplicateKeyError,
    Panic,
    bad_request,
    conflict,
    not_found,
)
from sandbox.registry.gojson import GoError
from sandbox.registry.kinds import (
    BY_COLLECTION,
    INFERENCE_SERVICE,
    MODEL_ARTIFACT,
    MODEL_VERSION,
    REGISTERED_MODEL,
    SERVE_MODEL,
    SERVING_ENVIRONMENT,
    Kind,
)
from sandbox.registry.records import stored_name, view
from sandbox.registry.store import Draft, Page, PropertyTooLongError, Row, Store

T = TypeVar("T")
Body = dict[str, Any]
Query = dict[str, str]

_FILTERED = frozenset({REGISTERED_MODEL.collection, MODEL_VERSION.collection, MODEL_ARTIFACT.collection})
"""Lists that honour `filterQuery`; the others ignore it, bad ones included."""
_ORDERS = frozenset({"ID", "CREATE_TIME", "LAST_UPDATE_TIME"})


class Core:
    """The operations of one request. `fault` is what the database answers to everything, None when it is well."""

    def __init__(
        self, store: Store, fault: str | None, *, filter_all: bool = False, strict_order: bool = False
    ) -> None:
        self._store = store
        self._fault = fault
        self._filter_all = filter_all
        self._strict_order = strict_order

    def _db(self) -> Store:
        if self._fault is not None:
            raise DatabaseError(self._fault)
        return self._store

    # By id: whatever goes wrong is "not found".

    def get(self, kind: Kind, id_text: str, none: str | None = None) -> Row:
        row_id = _parse_id(id_text, kind.label)
        try:
            row = self._db().get(kind, row_id)
        except DatabaseError:
            row = None
        if row is None:
            raise not_found(f"no {none or kind.none_by_id} found for id {id_text}")
        return row

    def model_of(self, service_id: str) -> Row:
        """Return the registered model of an inference service; one that does not exist is an internal error."""
        service = self.get(INFERENCE_SERVICE, service_id, none="inference service")
        row = self._store.get(REGISTERED_MODEL, int(service.fields["registeredModelId"]))
        if row is None:
            raise ApiError(500, "registered model by id not found: record not found")
        return row

    def version_of(self, service_id: str) -> Row:
        """Return the version of an inference service, or the newest one of its model."""
        service = self.get(INFERENCE_SERVICE, service_id, none="inference service")
        if "modelVersionId" in service.fields:
            return self.get(MODEL_VERSION, service.fields["modelVersionId"])
        newest = Page(order_by="CREATE_TIME", descending=True)
        rows, _ = self._store.page(MODEL_VERSION, int(service.fields["registeredModelId"]), None, newest)
        if not rows:
            raise not_found(f"no model versions found for id {service_id}")
        return rows[0]

    # Creates.

    def create(self, kind: Kind, body: Body) -> Row:
        """Create a record whose parent, if any, is one of its fields. Only a serving environment must exist."""
        if kind is INFERENCE_SERVICE:
            self._require_environment(body["servingEnvironmentId"])
        return self._insert(kind, body, None if kind.parent is None else body[kind.parent])

    def create_under(self, kind: Kind, owner_id: str, body: Body) -> Row:
        """Create a serve model or an artifact, whose parent is known from the path."""
        assert kind.owner is not None
        if kind is SERVE_MODEL:
            self._require_open_version(body["modelVersionId"])
        self.get(BY_COLLECTION[kind.owner], owner_id)
        return self._insert(kind, body, owner_id)

    def _require_environment(self, id_text: str) -> None:
        try:
            self.get(SERVING_ENVIRONMENT, id_text)
        except ApiError:  # an id that is no number is just not found here
            raise not_found(f"no serving environment found for id {id_text}") from None

    def _require_open_version(self, id_text: str) -> None:
        properties = self.get(MODEL_VERSION, id_text).properties
        gated = properties.get("hf_gated", {}).get("string_value", "")
        private = properties.get("hf_private", {}).get("string_value", "")
        if gated not in {"", "false"} or private == "true":
            raise bad_request(f"model version {id_text} is gated or private and cannot be served")

    def _insert(self, kind: Kind, body: Body, parent: str | None) -> Row:
        fields = map_ids(kind, body)
        draft = Draft(
            kind=kind,
            name=stored_name(kind, parent, body.get("name")),
            external_id=body.get("externalId"),
            parent=None if parent is None else int(parent),
            fields=fields,
            properties=map_properties(body.get("customProperties") or {}),
        )
        try:
            return self._db().insert(draft)
        except DuplicateKeyError:
            if kind is SERVE_MODEL and body.get("name") is None:
                raise Panic("the message for a duplicate reads a name that is not there") from None
            raise _conflict(kind, draft.name, body.get("name")) from None
        except DatabaseError as error:
            raise _not_saved(kind, error) from None

    # Updates: read, merge, write, without a lock. `read` and `write` are apart so that others can come in between.

    def write(self, row: Row, body: Body) -> Row:
        """Merge a body into the row as it was read, and write all of it back."""
        sent = body.get("customProperties")
        merged = msgspec.structs.replace(
            row,
            external_id=row.external_id if body.get("externalId") is None else body["externalId"],
            fields={**row.fields, **map_ids(row.kind, {key: body[key] for key in row.kind.fields if key in body})},
            properties=map_properties(row.properties if sent is None else sent),
        )
        try:
            return self._db().update(merged)
        except DuplicateKeyError:
            raise _conflict(row.kind, row.name, row.public_name) from None
        except DatabaseError as error:
            raise _not_saved(row.kind, error) from None

    # Finds and lists.

    def find(self, kind: Kind, query: Query) -> Row:
        """Return the one record of a name or an external id. Several are "not found" too. Empty means absent."""
        name, parent, external_id = (query.get(key, "") for key in ("name", "parentResourceId", "externalId"))
        if kind.is_child:
            if not (name and parent) and not external_id:
                needed = "either (name and parentResourceId), or externalId"
                raise bad_request(f"invalid parameters call, supply {needed}")
            asked = f"name={name}, parentResourceId={parent}, externalId={external_id}"
        else:
            if not name and not external_id:
                raise bad_request("invalid parameters call, supply either name or externalId")
            asked, parent = f"name={name}, externalId={external_id}", ""
        parent_id = _parse_id(parent, "parent resource") if parent else None
        found = self._reading(kind, lambda db: list(islice(self._matches(db, kind, name, external_id, parent_id), 2)))
        if len(found) > 1:
            raise not_found(f"multiple {kind.plural} found for {asked}")
        if not found:
            raise not_found(f"no {kind.none_found} found for {asked}")
        return found[0]

    def _matches(self, db: Store, kind: Kind, name: str, external_id: str, parent: int | None) -> Iterable[Row]:
        _require_utf8(name, external_id)
        if not name:
            return db.by_external_id(kind, external_id, parent)
        prefix = "" if not kind.is_child else "%:" if parent is None else f"{parent}:"
        return db.by_name(kind, prefix + name, parent)

    def list(self, kind: Kind, query: Query, parent: str | None = None, parent_label: str = "") -> dict[str, Any]:
        """Return one page as answers show it. A parent that does not exist has no children."""
        parent_id = None if parent is None else _parse_id(parent, parent_label)
        page = self._page(query)
        text = self._filter_text(kind, query, nested=parent is not None)

        def read(db: Store) -> tuple[list[Row], bool]:
            _require_utf8(text)
            return db.page(kind, parent_id, filter_query.parse(text, kind) if text.strip() else None, page)

        rows, more = self._reading(kind, read)
        return {
            "items": [view(row) for row in rows],
            "nextPageToken": _token(rows[-1], page.order_by) if more else "",
            "pageSize": page.size,
            "size": len(rows),
        }

    def _filter_text(self, kind: Kind, query: Query, *, nested: bool) -> str:
        text = query.get("filterQuery", "") if kind.collection in _FILTERED or self._filter_all else ""
        if nested and (kind is MODEL_VERSION or self._filter_all):
            for parameter in ("name", "externalId"):
                if value := query.get(parameter):
                    # The filter's lexer does not know doubled quotes: such a name is a syntax error.
                    condition = f"{parameter} = '{value.replace(chr(39), chr(39) * 2)}'"
                    return f"({text}) AND {condition}" if text.strip() else condition
        return text

    def _page(self, query: Query) -> Page:
        order = query.get("orderBy", "")
        if self._strict_order and order and order not in _ORDERS:
            raise bad_request(f"invalid orderBy {order}")
        try:
            size = gojson.parse_int32(query["pageSize"]) if query.get("pageSize") else 0
        except GoError as error:
            raise bad_request(f"invalid numeric string: {error}") from None
        return Page(
            size=size,
            order_by=order if order in _ORDERS else "ID",
            descending=query.get("sortOrder") == "DESC",
            after=_parse_token(query["nextPageToken"]) if query.get("nextPageToken") else None,
        )

    def _reading(self, kind: Kind, read: Callable[[Store], T]) -> T:
        try:
            return read(self._db())
        except DatabaseError as error:
            if error.has_sqlstate:
                raise bad_request(f"error listing {kind.plural}: {BAD_FILTER}") from None
            raise ApiError(500, f"error listing {kind.plural}: {error}") from None


def _parse_id(text: str, label: str) -> int:
    try:
        return gojson.parse_int32(text)
    except GoError as error:
        raise bad_request(f"invalid {label} ID: {error}") from None


def _conflict(kind: Kind, stored: str, plain: str | None) -> ApiError:
    """Blames the name, whichever key was taken."""
    return conflict(f"{kind.label} with name {stored if kind.conflict_shows_prefix else plain or ''} already exists")


def _not_saved(kind: Kind, error: DatabaseError) -> ApiError:
    if isinstance(error, PropertyTooLongError):
        return ApiError(500, f"error creating property {error.key}: {error}")
    return ApiError(500, f"error saving {kind.label}: {error}" if str(error).startswith("ERROR") else str(error))


def _require_utf8(*texts: str) -> None:
    if any("\udc80" <= char <= "\udcff" for text in texts for char in text):
        raise DatabaseError('ERROR: invalid byte sequence for encoding "UTF8" (SQLSTATE 22021)')


def _token(row: Row, order_by: str) -> str:
    value = {"CREATE_TIME": row.created_ms, "LAST_UPDATE_TIME": row.updated_ms}.get(order_by, row.id)
    return base64.b64encode(f"{row.id}:{value}".encode()).decode()


def _parse_token(text: str) -> tuple[int, str]:
    try:
        decoded = gojson.decode_base64(text).decode("utf-8", "replace")
    except GoError as error:
        raise bad_request(f"invalid nextPageToken: {error}") from None
    last_id, colon, value = decoded.partition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,18}", last_id):
        raise bad_request("invalid nextPageToken: invalid cursor format")
    return int(last_id), value
