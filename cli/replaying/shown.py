"""What `isvc-sync replay --to` shows in the end, as a table and as JSON. Pure but for the console."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.output import console, write_json
from cli.replaying.stages import Outcome
from replay.pacing import Lateness
from replay.target.outcome import Row, content
from replay.target.play import Played


class Shown(Struct, frozen=True, kw_only=True):
    """What there is to show. `cut`: where the capture ends without a footer, "" for a whole one."""

    target: str
    name: str
    played: Played
    outcome: Outcome
    lateness: Lateness
    cut: str

    @property
    def differs(self) -> bool:
        cluster = self.outcome.cluster
        return any(row.agrees is False for row in self.outcome.rows or ()) or bool(cluster and cluster.troubles)


def show(shown: Shown, output: Literal["table", "json"]) -> None:
    if output == "json":
        write_json(as_data(shown))
    else:
        console().print(drawn(shown))


def as_data(shown: Shown) -> dict[str, Any]:
    """Return the document for programs."""
    outcome, late = shown.outcome, shown.lateness
    return {
        "target": shown.target,
        "name": shown.name,
        "events": shown.played.events,
        "duplicates": outcome.duplicates,
        "unreadable": outcome.unreadable,
        "compared": outcome.compared,
        "cut": shown.cut or None,
        "lateness": {"paced": late.events, "late": late.late, "worstS": late.worst_s, "endS": late.end_s},
        "deadLetters": outcome.dead,
        "objects": None if outcome.rows is None else [_row_data(row) for row in outcome.rows],
        "cluster": None if outcome.cluster is None else asdict(outcome.cluster),
    }


def _row_data(row: Row) -> dict[str, Any]:
    record = row.record
    said = None if record is None else {"id": record.id} | content(record, row.environment)
    return {
        "kind": row.key.kind,
        "namespace": row.key.namespace,
        "name": row.key.name,
        "record": said,
        "agrees": row.agrees,
        "differences": [asdict(each) for each in row.differences],
        "deadLetter": row.dead or None,
    }


def drawn(shown: Shown) -> RenderableType:
    """Return the table with its sentences."""
    outcome = shown.outcome
    parts: list[RenderableType] = [Text(line) for line in _sentences(shown)]
    if outcome.rows is not None:
        parts = [_table(outcome), Text(""), *parts]
    return Group(*parts)


def _table(outcome: Outcome) -> Table:
    table = Table("Object", "Record", "Model", "Version", "State", "Ready", box=None, padding=(0, 2, 0, 0))
    if outcome.compared:
        table.add_column("As captured")
    for row in outcome.rows or ():
        said = {} if row.record is None else content(row.record, row.environment)
        record = "none" if row.record is None else row.record.id
        cells = [str(row.key), record, *(said.get(name) or "-" for name in ("model", "version", "state", "ready"))]
        if outcome.compared:
            cells.append("yes" if row.agrees else "no: " + ", ".join(each.field for each in row.differences))
        table.add_row(*map(Text, cells))
    return table


def _sentences(shown: Shown) -> list[str]:
    played, outcome, late = shown.played, shown.outcome, shown.lateness
    lines = [f"{played.events} events of {len(played.objects)} objects were replayed to {shown.target}."]
    for row in outcome.rows or ():
        lines += [
            f"{row.key}: {each.field} is {each.replayed or 'nothing'}, captured was {each.captured or 'nothing'}"
            for each in row.differences
        ]
    if (cluster := outcome.cluster) is not None:
        lines.append(f"{cluster.created} created, {cluster.changed} changed, {cluster.deleted} deleted.")
        lines += [f"Not always as captured: {place}: {reason}" for place, reason in sorted(cluster.troubles.items())]
    lines += [f"Dead letter of {key}: {reason}" for key, reason in sorted(outcome.dead.items())]
    if outcome.duplicates:
        lines.append(f"{outcome.duplicates} were dropped by the broker as repetitions.")
    if outcome.unreadable:
        lines.append(f"{outcome.unreadable} could not be replayed: they do not decode.")
    if late.events:
        lines.append(
            f"{late.late} of {late.events} came more than 10 ms late; {late.worst_s:.3f} s at worst, "
            f"{late.end_s:.3f} s at the end."
        )
    if outcome.rows is not None and not outcome.compared:
        lines.append("Not compared: there is nothing about the end to compare with.")
    return lines
