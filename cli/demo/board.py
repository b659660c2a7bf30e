"""The table of the demo: each object beside its record. From what is seen to rows; pure."""

import msgspec

from cli.demo.state import ID_LABEL, MODEL_LABEL, Life, Record, Seen, deferral


class Row(msgspec.Struct, frozen=True):
    """One line of the table, as text."""

    name: str
    shape: str
    mode: str
    ready: str
    record: str = "-"
    state: str = "-"
    version: str = "-"
    url: str = "-"
    write_back: str = "-"
    latency: str = "-"


def rows(seen: Seen) -> list[Row]:
    """Return the rows in the order in which the objects were created, an object's lives below each other."""
    order = {name: number for number, name in enumerate(dict.fromkeys(life.name for life in seen.lives))}
    lives = sorted(seen.lives, key=lambda life: order[life.name])
    return [row for life in lives for row in _rows_of(life, seen)]


def _rows_of(life: Life, seen: Seen) -> list[Row]:
    return [_row(life, record, seen) for record in seen.records_of(life)] or [_row(life, None, seen)]


def _row(life: Life, record: Record | None, seen: Seen) -> Row:
    ready = "gone" if life.gone else "deleted" if not life.lives else life.ready or "-"
    row = Row(life.name, life.shape, life.mode, ready)
    if record is None:
        return row
    version = seen.versions.get(record.model_version_id)
    return msgspec.structs.replace(
        row,
        record=record.id,
        state=record.desired_state,
        version=version.name if version else "-",
        url=record.url.partition("://")[2] or "-",
        write_back=_write_back(life, record),
        latency="-" if life.latency_ms is None else str(life.latency_ms),
    )


def _write_back(life: Life, record: Record) -> str:
    if life.label(ID_LABEL) == record.id:
        return "written"
    return "deferred" if life.lives and life.label(MODEL_LABEL) and deferral(life) else "-"
