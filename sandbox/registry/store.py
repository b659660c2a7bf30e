"""The database behind the registry, in memory: rows, unique keys, one counter of ids for each table. No I/O, no clock.

Rows never change in place. Who reads one has a snapshot, and writing it back later overwrites what others wrote in
between, as with the real server (read, merge, write, without a lock).
"""

import operator
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from sandbox.registry.errors import DatabaseError, DuplicateKeyError
from sandbox.registry.kinds import Kind, Table
from sandbox.registry.like import Like, identity

MAX_LENGTH = 255
"""Characters (not bytes) in a stored name, an external id, a property's key."""
TOO_LONG = "ERROR: value too long for type character varying(255) (SQLSTATE 22001)"
_CUSTOM_PLANS = 5
_SCATTER = 2654435761


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One record. `name` is the stored one, with the parent's id before it."""

    id: int
    kind: Kind
    name: str
    external_id: str | None
    parent: int | None
    fields: dict[str, Any]
    properties: dict[str, dict[str, Any]]
    created_ms: int
    updated_ms: int

    @property
    def key(self) -> tuple[str, int]:
        return self.kind.collection, self.id

    @property
    def public_name(self) -> str:
        return self.name.partition(":")[2] if self.kind.is_child and ":" in self.name else self.name


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A row that has no id yet."""

    kind: Kind
    name: str
    external_id: str | None = None
    parent: int | None = None
    fields: dict[str, Any] = {}
    properties: dict[str, dict[str, Any]] = {}


class PropertyTooLongError(DatabaseError):
    """A property's key does not fit; the server tells this one in other words."""

    def __init__(self, key: str) -> None:
        super().__init__(TOO_LONG)
        self.key = key


class _TableState:
    def __init__(self) -> None:
        self.next_id = 1
        self.rows: dict[tuple[str, int], Row] = {}
        self.by_name: dict[tuple[str, str], int] = {}
        self.by_external_id: dict[str, tuple[str, int]] = {}
        self.inserts_since_failure = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a list, in which order. `size` 0 or less: all. `after`: id and order value of the last row."""

    size: int = 0
    order_by: str = "ID"
    descending: bool = False
    after: tuple[int, str] | None = None


class Store:
    """All tables. `now_ms` is asked at each write; `fold` gives the form in which the database compares names."""

    def __init__(self, now_ms: Callable[[], int], fold: Callable[[str], str] = identity) -> None:
        self._now_ms = now_ms
        self.fold = fold
        self.clear()

    def clear(self) -> None:
        """Forget everything, ids included: what a restored or re-created database looks like to its clients."""
        self._tables: defaultdict[Table, _TableState] = defaultdict(_TableState)
        self._ids: defaultdict[tuple[str, int | None], list[int]] = defaultdict(list)

    def get(self, kind: Kind, row_id: int) -> Row | None:
        return self._tables[kind.table].rows.get((kind.collection, row_id))

    def insert(self, draft: Draft) -> Row:
        """Raise DuplicateKeyError or another DatabaseError; a failed insert has used up an id.

        A value that is too long uses one up only when the statement had run five times since its last failure: until
        then PostgreSQL plans it with the values at hand and refuses before it asks the sequence.
        """
        table = self._tables[draft.kind.table]
        burns = not _too_long(draft.name, draft.external_id) or table.inserts_since_failure >= _CUSTOM_PLANS
        row_id = table.next_id
        table.next_id += burns
        now = self._now_ms()
        row = Row(id=row_id, created_ms=now, updated_ms=now, **msgspec.structs.asdict(draft))
        try:
            self._check(row)
        except DatabaseError:
            table.inserts_since_failure = 0
            raise
        table.inserts_since_failure += 1
        self._put(row)
        return row

    def update(self, row: Row) -> Row:
        """Write back a row that was read before, changed. Raises as `insert`."""
        updated = msgspec.structs.replace(row, updated_ms=self._now_ms())
        self._check(updated)
        self._put(updated)
        return updated

    def restore(self, row: Row) -> None:
        """Put a row with its id and times; the counter goes on above it. Raises DatabaseError when a key is taken.

        Two rows of different kinds may have one id, which the server's own counter never gives: a recorded story may be
        labelled with model 1 and version 1.
        """
        if row.key in self._tables[row.kind.table].rows:
            raise DuplicateKeyError(f"id {row.id} is taken")
        self._check(row)
        self._put(row)
        table = self._tables[row.kind.table]
        table.next_id = max(table.next_id, row.id + 1)

    def _check(self, row: Row) -> None:
        table = self._tables[row.kind.table]
        if _too_long(row.name, row.external_id):
            raise DatabaseError(TOO_LONG)
        if table.by_name.get((row.kind.collection, self.fold(row.name)), row.id) != row.id:
            raise DuplicateKeyError(f"name {row.name} is taken")
        if row.external_id is not None:
            owner = table.by_external_id.get(self.fold(row.external_id), row.key)
            if owner != row.key:
                raise DuplicateKeyError(f"external id {row.external_id} is taken")
        for key in row.properties:
            if len(key) > MAX_LENGTH:
                raise PropertyTooLongError(key)

    def _put(self, row: Row) -> None:
        table = self._tables[row.kind.table]
        old = table.rows.get(row.key)
        table.rows[row.key] = row
        if old is None:
            table.by_name[row.kind.collection, self.fold(row.name)] = row.id
            for parent in {None, row.parent}:
                insort(self._ids[row.kind.collection, parent], row.id)
        elif old.external_id is not None:
            del table.by_external_id[self.fold(old.external_id)]
        if row.external_id is not None:
            table.by_external_id[self.fold(row.external_id)] = row.key

    def all(self, kind: Kind, parent: int | None = None) -> Iterator[Row]:
        """Rows of a kind (and a parent), by id."""
        rows = self._tables[kind.table].rows
        return (rows[kind.collection, row_id] for row_id in self._ids.get((kind.collection, parent), ()))

    def count(self, kind: Kind) -> int:
        return len(self._ids.get((kind.collection, None), ()))

    def by_name(self, kind: Kind, pattern: str, parent: int | None) -> Iterable[Row]:
        """Rows whose stored name is LIKE the pattern. Raises DatabaseError for a pattern that cannot be matched."""
        like = Like(pattern, self.fold)
        if like.exact is None:
            return (row for row in self.all(kind, parent) if like.matches(row.name))
        row_id = self._tables[kind.table].by_name.get((kind.collection, self.fold(like.exact)))
        return self._one(kind, row_id, parent)

    def by_external_id(self, kind: Kind, external_id: str, parent: int | None) -> Iterable[Row]:
        collection, row_id = self._tables[kind.table].by_external_id.get(self.fold(external_id), ("", None))
        return self._one(kind, row_id, parent) if collection == kind.collection else []

    def _one(self, kind: Kind, row_id: int | None, parent: int | None) -> list[Row]:
        row = None if row_id is None else self.get(kind, row_id)
        return [row] if row is not None and parent in {None, row.parent} else []

    def page(
        self, kind: Kind, parent: int | None, where: Callable[[Row], bool] | None, page: Page
    ) -> tuple[list[Row], bool]:
        """Rows of one page, and whether there are more."""
        if page.order_by == "ID":
            rows: Iterable[Row] = self._by_id(kind, parent, page)
        else:
            rows = self._by_time(kind, parent, page)
        chosen: list[Row] = []
        for row in rows if where is None else filter(where, rows):
            if 0 < page.size == len(chosen):
                return chosen, True
            chosen.append(row)
        return chosen, False

    def _by_id(self, kind: Kind, parent: int | None, page: Page) -> Iterator[Row]:
        ids = self._ids.get((kind.collection, parent), [])
        rows = self._tables[kind.table].rows
        last = None if page.after is None else _as_integer(page.after[1])
        if page.descending:
            end = len(ids) if last is None else bisect_left(ids, last)
            return (rows[kind.collection, ids[at]] for at in range(end - 1, -1, -1))
        start = 0 if last is None else bisect_right(ids, last)
        return (rows[kind.collection, ids[at]] for at in range(start, len(ids)))

    def _by_time(self, kind: Kind, parent: int | None, page: Page) -> list[Row]:
        """By a time, rows of the same millisecond in any order, although the cursor counts on their ids.

        So a scan loses and repeats rows, as it does with the real server.
        """
        created = page.order_by == "CREATE_TIME"
        keyed = [((row.created_ms if created else row.updated_ms), row) for row in self.all(kind, parent)]
        if page.after is not None:
            cursor = (_as_integer(page.after[1]), page.after[0])
            beyond = operator.lt if page.descending else operator.gt
            keyed = [(time, row) for time, row in keyed if beyond((time, row.id), cursor)]
        keyed.sort(key=lambda pair: (pair[0], pair[1].id * _SCATTER & 0xFFFFFFFF), reverse=page.descending)
        return [row for _, row in keyed]


def _too_long(name: str, external_id: str | None) -> bool:
    return len(name) > MAX_LENGTH or (external_id is not None and len(external_id) > MAX_LENGTH)


def _as_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DatabaseError(f"ERROR: invalid input syntax for type bigint: {text!r} (SQLSTATE 22P02)") from None
