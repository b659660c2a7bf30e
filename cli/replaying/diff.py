"""`isvc-sync diff A B`: where the plans of two captures part, or of one capture under two versions of isvc-sync.

The other version decides in a process of its own: `isvc-sync replay FILE -o json` of a checkout, or of a virtual
environment. Both plans are held in memory.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.ending import REFUSED, Endings, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.progress import tell
from cli.replaying.plan import Selection, planned
from replay.capture import CaptureError
from replay.differences import Parting, Place, Plan, compare
from replay.files import reading
from replay.plan_text import clean
from replay.planning import Planner
from replay.steps import Step
from shared.decoding import UNDECODABLE

COMMAND: Final = "diff"
SAME, DIFFERS, CUT = 0, 1, 3
_ENDINGS: Final = Endings(unread=REFUSED, cut=CUT)  # before the two were compared
_SHOWN_MAX: Final = 120  # characters of a value
_PLAIN: Final = {"COLUMNS": "1000", "TERM": "dumb", "NO_COLOR": "1", "TYPER_USE_RICH": "0"}  # one sentence, one line
_BOX: Final = " │|┃╭╮╰╯─━"


class Options(Struct, frozen=True, kw_only=True):
    """Two captures; or one, and `against`: the directory of a checkout or a virtual environment."""

    files: tuple[Path, ...]
    against: Path | None = None
    only: tuple[str, ...] = ()
    output: Literal["table", "json"] = "table"

    @property
    def contradiction(self) -> str:
        """Return a sentence when the options do not go together."""
        wanted = 2 if self.against is None else 1
        if len(self.files) == wanted:
            return ""
        return "give two captures." if wanted == 2 else "give one capture where there is --against."


def run(options: Options) -> int:
    """Compare; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _run(options))


def _run(options: Options) -> int:
    try:
        selection = Selection.of(options.only)
        command = None if options.against is None else command_of(options.against)
    except ValueError as error:
        return failed(COMMAND, str(error), REFUSED)
    if options.contradiction:
        return failed(COMMAND, options.contradiction, REFUSED)
    return _compared(options, selection, command)


def _compared(options: Options, selection: Selection, command: "Command | None") -> int:
    silence_logs()
    exact = command is not None
    left, cut = _planned_here(options.files[0], selection, exact=exact)
    if command is None:
        right, also = _planned_here(options.files[1], selection, exact=exact)
        cut = cut or also
    else:
        right = _planned_there(command, options.files[0], selection)
    partings = compare(left, right)
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        _show(options, partings, len(left.steps.keys() | right.steps.keys()))
    if partings:
        return DIFFERS
    return failed(COMMAND, "a file was cut: nothing differs up to there.", CUT) if cut else SAME


class Command(Struct, frozen=True):
    """How another version is started, and with which variables beside our own."""

    args: tuple[str, ...]
    variables: Mapping[str, str] = {}


def command_of(path: Path) -> Command:
    """Return how the isvc-sync of a checkout or a virtual environment is started. Raises ValueError with a sentence."""
    directory = path.absolute()
    if (directory / "bin" / "isvc-sync").is_file():
        return Command((str(directory / "bin" / "isvc-sync"),))
    if (directory / "cli" / "__main__.py").is_file():
        # -P: not the directory of the moment, which may be another checkout.
        return Command((sys.executable, "-P", "-m", "cli"), {"PYTHONPATH": str(directory)})
    raise ValueError(f"--against {path}: it is no checkout (cli/__main__.py) and no virtual environment of isvc-sync.")


def _planned_here(file: Path, selection: Selection, *, exact: bool) -> tuple[Plan, bool]:
    plan = Plan(exact=exact)
    with reading(file) as capture:
        for step in planned(capture, Planner(capture.header), selection):
            plan.add(step)
        if capture.cut is not None:
            tell(COMMAND, f"{capture.name} was cut, {capture.cut}.")
        return plan, capture.cut is not None


def _planned_there(command: Command, file: Path, selection: Selection) -> Plan:
    """Return what another version decides. Raises CaptureError with what it says where it does not."""
    plan = Plan(exact=True)
    arguments = (*command.args, "replay", str(file.absolute()), "-o", "json")
    environ = {**os.environ, **command.variables, **_PLAIN}
    with TemporaryFile() as said:
        with subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE, stderr=said) as process:  # noqa: S603 - named by whoever called us
            assert process.stdout is not None, "asked for"
            try:
                for step in _steps(process.stdout):
                    if selection.shows_object(step):
                        plan.add(step)
            except UNDECODABLE as error:
                raise CaptureError(f"{command.args[0]} writes no plan that this version can read: {error}") from error
        said.seek(0)
        complaint = said.read().decode(errors="replace").strip()
    if process.returncode not in {SAME, CUT}:
        raise CaptureError(f"the other version ended with {process.returncode}: {_last_words(complaint)}")
    return plan


def _last_words(complaint: str) -> str:
    """Return the last line that says something, without the box that may be drawn around it."""
    words = (clean(line).strip(_BOX) for line in reversed(complaint.splitlines()))
    return next((line for line in words if any(map(str.isalpha, line))), "it says nothing")


def _steps(lines: Iterable[bytes]) -> Iterator[Step]:
    for line in lines:
        if not line.startswith(b'{"summary"'):
            yield _STEP.decode(line)


_STEP: Final = msgspec.json.Decoder(Step)


def _show(options: Options, partings: list[Parting], objects: int) -> None:
    if options.output == "json":
        write_json(
            {
                "objects": objects,
                "differing": len(partings),
                "first": _data(partings[0]) if partings else None,
                "differences": [_data(each) for each in partings],
            }
        )
    else:
        console().print(_listing(partings, objects))


def _data(parting: Parting) -> dict[str, Any]:
    key = parting.key
    return {
        "kind": key.kind,
        "namespace": key.namespace,
        "name": key.name,
        "left": parting.left,
        "right": parting.right,
        "what": parting.what,
        "leftValue": parting.left_value,
        "rightValue": parting.right_value,
        "more": parting.more,
    }


def _listing(partings: list[Parting], objects: int) -> RenderableType:
    noun = "object" if objects == 1 else "objects"
    if not partings:
        return Text(f"The plans of {objects} {noun} are the same.")
    first = partings[0]
    sentence = f"First divergence: {first.key}, {_place(first.left)} | {_place(first.right)}, in {first.what}."
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("Object", "Left", "Right", "What", "Left says", "Right says"):
        drawn.add_column(title, overflow="fold")
    drawn.add_column("More", justify="right")
    for each in partings:
        values = (clean(value)[:_SHOWN_MAX] for value in (each.left_value, each.right_value))
        cells = (_place(each.left), _place(each.right), each.what, *values, str(each.more))
        drawn.add_row(Text(str(each.key), "cyan"), *(Text(cell) for cell in cells))
    return Group(Text(sentence), Text(), drawn, Text(), Text(f"{len(partings)} of {objects} {noun} differ."))


def _place(place: Place | None) -> str:
    return "-" if place is None else f"seq {place.seq}"
