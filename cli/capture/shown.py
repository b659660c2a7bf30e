"""How the numbers of a capture are shown."""

from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay.upkeep import statistics
from replay.upkeep.statistics import Statistics
from shared.events import EventType

_OBJECTS_MAX: Final = 20


def as_data(found: Statistics, file: Path) -> dict[str, Any]:
    """Return everything for programs."""
    return {"bytes": _size(file), **statistics.as_data(found)}


def listing(found: Statistics, file: Path) -> RenderableType:
    """Return what a person wants to know of a file."""
    types = ", ".join(f"{found.types[each.value]} {each.value}" for each in EventType)
    facts = Table.grid(padding=(0, 2))
    rows = [
        ("file", f"{file}, {_size(file):,} bytes"),
        ("events", f"{found.events:,} ({types})"),
        ("of them", f"{found.initial} initial, {found.synthetic} synthetic, {found.truncated} truncated"),
        ("objects", f"{len(found.objects):,}, {found.uids:,} uids"),
        ("span", _span(found)),
        ("sequence", _sequence(found)),
        ("duplicates", f"{found.duplicates:,}"),
        ("records", f"{found.records_at_start:,} at the start, {found.records_at_end:,} at the end"),
        ("actions", f"{found.actions:,}"),
    ]
    for name, text in rows:
        facts.add_row(name, text)
    return Group(facts, Text(), _objects(found)) if found.objects else facts


def _objects(found: Statistics) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("object", overflow="fold")
    for name in ("events", *(each.value for each in EventType), "uids", "duplicates"):
        table.add_column(name, justify="right")
    table.add_column("last", overflow="fold")
    moved = statistics.moved(found)
    for each in moved[:_OBJECTS_MAX]:
        counts = (each.events, *(each.types[kind.value] for kind in EventType), len(each.uids), each.duplicates)
        table.add_row(Text(str(each.key)), *map(str, counts), Text(each.last))
    more = len(moved) - _OBJECTS_MAX
    return Group(table, Text(f"and {more:,} more; -o json names all of them")) if more > 0 else table


def _span(found: Statistics) -> str:
    if not found.first:
        return "none"
    mean = f", {(found.events - found.initial) / found.span_s:,.2f} events/s" if found.span_s else ""
    return f"{found.first} to {found.last}, {found.span_s:,.1f} s{mean}, at most {found.peak:,} in one second"


def _sequence(found: Statistics) -> str:
    gaps = f"{found.gaps:,} gaps ({found.missing:,} missing)" if found.gaps else "no gap"
    order = f", {found.out_of_order:,} out of order" if found.out_of_order else ""
    return f"{found.first_seq} to {found.last_seq}, {gaps}{order}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
