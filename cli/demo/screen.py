"""What people see of the demo: a live table in a terminal, lines elsewhere, and the checks at the end."""

import time
from collections.abc import Sequence
from typing import Final, Literal, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.demo.board import Row, rows
from cli.demo.checks import Check
from cli.demo.state import Seen
from cli.output import Output

_COLOURS: Final = {
    **dict.fromkeys(("True", "DEPLOYED", "written"), "green"),
    **dict.fromkeys(("False", "Unknown", "deferred"), "yellow"),
    **dict.fromkeys(("gone", "deleted", "UNDEPLOYED", "-"), "bright_black"),
}
# Least widths in characters, so that nothing moves when a text changes. The url takes what room is left.
_COLUMNS: Final = {
    "Object": 10,
    "Shape": 13,
    "Mode": 9,
    "Ready": 7,
    "Id": 2,
    "State": 10,
    "Version": 7,
    "Url": 14,
    "Label": 8,
    "ms": 5,
}
_DISPENSABLE: Final = ("Url", "Mode", "Shape")  # on a narrow terminal, in this order: a cut number would mislead
_NUMBERS: Final = {"Id", "ms"}
_PLAIN_WIDTH: Final = 140  # a log has no edge: urls are shown whole
_FRAMES_PER_SECOND: Final = 8


class Screen(Protocol):
    """Where the story is told. `moves`: to somebody who reads while it happens."""

    moves: bool

    def step(self, text: str) -> None:
        """Say what happens next."""

    def note(self, text: str) -> None:
        """Add to the present step."""

    def show(self, seen: Seen) -> None:
        """Show cluster and registry as they are now."""

    def close(self) -> None:
        """Stop moving; what was shown last stays. Doing it twice does no harm."""


class Lines:
    """A line for each step, and for each record that appears or changes its state or version."""

    moves = False

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._said: dict[tuple[str, str], tuple[str, str]] = {}
        self._rows: list[Row] = []

    def step(self, text: str) -> None:
        self._line(text)

    def note(self, text: str) -> None:
        self._line(f"  {text}")

    def show(self, seen: Seen) -> None:
        self._rows = rows(seen)
        for row in self._rows:
            key, now = (row.name, row.record), (row.state, row.version)
            if row.record != "-" and self._said.get(key) != now:
                self._said[key] = now
                self._line(f"  {row.name}: record {row.record} {row.state}, version {row.version}")

    def close(self) -> None:
        if self._rows:
            self._console.print(table(self._rows, self._console.width))
            self._rows = []

    def _line(self, text: str) -> None:
        self._console.print(f"[{time.monotonic() - self._started:5.1f} s] {text}", markup=False, soft_wrap=True)


class Moving:
    """The table, redrawn in place, with the present step above it."""

    moves = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._step, self._notes, self._count = "The sandbox starts", [""], 0
        self._seen = Seen()
        self._live = Live(
            get_renderable=self._picture,
            console=console,
            refresh_per_second=_FRAMES_PER_SECOND,
            vertical_overflow="crop",
        )
        self._live.start()

    def step(self, text: str) -> None:
        self._step, self._notes = text, []
        self._count += 1

    def note(self, text: str) -> None:
        self._notes.append(text)

    def show(self, seen: Seen) -> None:
        self._seen = seen

    def close(self) -> None:
        self._live.stop()

    def _picture(self) -> Group:
        elapsed = f"{time.monotonic() - self._started:.0f} s"
        title = Text.assemble(("isvc-sync demo", "bold"), f"   step {self._count}   ", (elapsed, "bright_black"))
        note = Text(f"  {self._notes[-1] if self._notes else ''}", "bright_black", no_wrap=True, overflow="ellipsis")
        step = Text.assemble(("▸ ", "cyan"), (self._step, "bold"))
        shown = rows(self._seen)
        return Group(title, step, note, *((Text(), table(shown, self._console.width)) if shown else ()))


def screen(console: Console, *, plain: bool) -> Screen:
    """Choose how to show the demo: moving only where something can move."""
    return Lines(console) if plain or not console.is_terminal or console.no_color else Moving(console)


def console(*, plain: bool) -> Console:
    """Return the console that fits standard output; `plain` turns colours off, too."""
    found = Output(highlight=False)
    if found.is_terminal and not plain:
        return found
    return Output(highlight=False, no_color=True, width=found.width if found.is_terminal else _PLAIN_WIDTH)


def table(shown: Sequence[Row], width: int) -> Table:
    """Return objects beside their records, with the columns that fit into `width` characters."""
    headings = _headings(width)
    drawn = Table(box=None, padding=(0, 1, 0, 0), expand="Url" in headings, header_style="bright_black", pad_edge=False)
    for heading in headings:
        if heading == "Url":
            drawn.add_column(heading, no_wrap=True, ratio=1, overflow="ellipsis")
        else:
            justify: Literal["left", "right"] = "right" if heading in _NUMBERS else "left"
            drawn.add_column(heading, no_wrap=True, min_width=_COLUMNS[heading], justify=justify)
    for row in shown:
        cells = _cells(row)
        drawn.add_row(*(_cell(cells[each]) for each in headings), style="bright_black" if row.ready == "gone" else "")
    return drawn


def _headings(width: int) -> list[str]:
    headings = dict(_COLUMNS)
    for name in _DISPENSABLE:
        if sum(headings.values()) + len(headings) - 1 > width:
            del headings[name]
    return list(headings)


def _cells(row: Row) -> dict[str, str]:
    name = row.name.rpartition("/")[2]  # the url has the namespace
    left = (name, row.shape, row.mode, row.ready)
    right = (row.record, row.state, row.version, row.url, row.write_back, row.latency)
    return dict(zip(_COLUMNS, left + right, strict=True))


def _cell(text: str) -> Text:
    return Text(text, style=_COLOURS.get(text, ""))


def results(checks: Sequence[Check]) -> Table:
    """Return the checks with their results, the failed ones last, where the eye rests."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for check in sorted(checks, key=lambda each: not each.passed):
        mark = Text("passed", "green") if check.passed else Text("FAILED", "bold red")
        drawn.add_row(mark, Text(check.name), Text(check.detail, "bright_black" if check.passed else ""))
    drawn.columns[0].no_wrap = drawn.columns[1].no_wrap = True
    return drawn
