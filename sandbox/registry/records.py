"""Rows as clients see them, and back: the JSON form of answers, dumps and seeds."""

import uuid
from collections.abc import Mapping
from typing import Any

from sandbox.registry.errors import DatabaseError
from sandbox.registry.kinds import BY_COLLECTION, KINDS, Kind
from sandbox.registry.store import Row, Store

HIDDEN_PROPERTIES = frozenset({"experiment_id", "experiment_run_id"})
"""Custom properties of these names are stored and never shown."""

_SERVER_SET = frozenset(
    {"id", "name", "externalId", "customProperties", "createTimeSinceEpoch", "lastUpdateTimeSinceEpoch"}
)


def view(row: Row) -> dict[str, Any]:
    """Show the record as answers show it. Absent fields are left out, `customProperties` never is."""
    shown: dict[str, Any] = {
        **row.fields,
        "id": str(row.id),
        "name": row.public_name,
        "createTimeSinceEpoch": str(row.created_ms),
        "lastUpdateTimeSinceEpoch": str(row.updated_ms),
        "customProperties": {key: value for key, value in row.properties.items() if key not in HIDDEN_PROPERTIES},
    }
    if row.external_id is not None:
        shown["externalId"] = row.external_id
    return shown


def stored_name(kind: Kind, parent: str | None, name: str | None) -> str:
    """Put the parent's id, as text, before the name; a missing name is invented, an empty one leaves no colon."""
    chosen = str(uuid.uuid4()) if name is None else name
    if not kind.is_child:
        return chosen
    prefix = str(uuid.uuid4()) if parent is None else parent
    return f"{prefix}:{chosen}" if chosen else prefix


class Registry:
    """The registry's content for tests and demos: put records in with ids of one's choice, read everything out."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def records(self, collection: str | None = None) -> list[dict[str, Any]]:
        """Every record of one collection (`inference_services`, ...), or of all, by id."""
        kinds = KINDS if collection is None else (_kind(collection),)
        return [view(row) for kind in kinds for row in self.store.all(kind)]

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """Everything, by collection; `seed` takes it back, but for serve models and artifacts."""
        return {kind.collection: self.records(kind.collection) for kind in KINDS}

    def clear(self) -> None:
        """Forget everything; ids begin at 1 again, as after a reset of the database."""
        self.store.clear()

    def replace(self, now_ms: int, collections: Mapping[str, list[dict[str, Any]]]) -> None:
        """Put these records in the place of all others. Raises ValueError as `seed`, and then nothing has changed."""
        Registry(Store(lambda: now_ms, self.store.fold)).seed(now_ms, collections)
        self.clear()
        self.seed(now_ms, collections)

    def seed(self, now_ms: int, collections: Mapping[str, list[dict[str, Any]]]) -> None:
        """Add records with the ids they name; new ids go on above the highest. Times default to `now_ms`.

        Raises ValueError naming the record that cannot be put in; those before it are in then.
        """
        for collection, records in collections.items():
            kind = _kind(collection)
            for record in records:
                try:
                    self.store.restore(_row(kind, record, now_ms))
                except (DatabaseError, KeyError, TypeError, AttributeError) as error:
                    raise ValueError(f"cannot seed {collection} with {record}: {error!r}") from error


def _kind(collection: str) -> Kind:
    if collection not in BY_COLLECTION:
        raise ValueError(f"no collection {collection!r} in a registry; it has {', '.join(BY_COLLECTION)}")
    return BY_COLLECTION[collection]


def _row(kind: Kind, record: dict[str, Any], now_ms: int) -> Row:
    if kind.owner is not None:
        raise ValueError(f"{kind.collection} cannot be seeded: their parent is in no field; create them by request")
    if unknown := set(record) - set(kind.creatable) - _SERVER_SET:
        raise ValueError(f"cannot seed {kind.collection}: unknown fields {', '.join(sorted(unknown))}")
    parent = None if kind.parent is None else str(record[kind.parent])
    fields = {field: value for field, value in record.items() if field not in _SERVER_SET}
    created = int(record.get("createTimeSinceEpoch", now_ms))
    state = {kind.state: kind.states[0]} if kind.state else {}
    return Row(
        id=int(record["id"]),
        kind=kind,
        name=stored_name(kind, parent, record["name"]),
        external_id=record.get("externalId"),
        parent=None if parent is None else int(parent),
        fields={**state, **fields},
        properties=dict(record.get("customProperties", {})),
        created_ms=created,
        updated_ms=int(record.get("lastUpdateTimeSinceEpoch", created)),
    )
