"""`isvc-sync replay FILE`: decide a capture again, and show every decision with its reason. Nothing is touched.

With `--to` the events are played to real parts instead (`to.py`). Rows are written as they are decided: memory
does not grow with the length of the file.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from rich.text import Text

from cli.ending import REFUSED, Endings, guarded
from cli.output import console, failed, silence_logs
from cli.progress import tell
from replay.capture import Captured, Facts
from replay.files import Capture, reading
from replay.pacing import Bound, parse_bound
from replay.plan_text import ASSUMED, Tally, foot, head, rows
from replay.planning import Planner
from replay.steps import Step
from shared.objects import Kind, ObjectKey

COMMAND: Final = "replay"
SHOWN, CUT = 0, 3
_ENDINGS: Final = Endings(unread=SHOWN, cut=CUT)
_STYLES: Final = {"dead": "red", "retry": "yellow", "noop": "bright_black", "duplicate": "bright_black"}
_ENCODER: Final = msgspec.json.Encoder()


class Options(Struct, frozen=True, kw_only=True):
    """What to decide and to show. `since` is `--from`; `only`: NS/NAME, none for all. `strict`: see `Planner`."""

    file: Path
    since: str = ""
    until: str = ""
    only: tuple[str, ...] = ()
    strict: bool = False
    output: Literal["table", "json"] = "table"


class Selection(Struct, frozen=True):
    """Which events are shown, and where deciding ends. Raises ValueError with a sentence when it is made."""

    since: Bound | None
    until: Bound | None
    only: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, only: tuple[str, ...], since: str = "", until: str = "") -> "Selection":
        return cls(_bound("--from", since), _bound("--until", until), frozenset(_named(each) for each in only))

    def is_over(self, line: Captured) -> bool:
        return self.until is not None and self.until.is_before(line)

    def shows(self, line: Captured) -> bool:
        return self.since is None or not self.since.is_after(line)

    def unknown(self, planner: Planner) -> tuple[str, ...]:
        """Return those of `only` of which no event has told."""
        missing = []
        for namespace, name in sorted(self.only):
            keys = [ObjectKey(kind, namespace, name) for kind in Kind]
            if not any(planner.shown(key) or key in planner.dead_letters for key in keys):
                missing.append(f"{namespace}/{name}")
        return tuple(missing)

    def shows_object(self, step: Step) -> bool:
        return not self.only or (step.key.namespace, step.key.name) in self.only


def run(options: Options) -> int:
    """Show the plan; return the exit code."""
    try:
        selection = Selection.of(options.only, options.since, options.until)
    except ValueError as error:
        return failed(COMMAND, str(error), REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, selection))


def _run(options: Options, selection: Selection) -> int:
    silence_logs()
    with _seldom_collecting(), reading(options.file) as capture:
        return _plan(capture, options, selection)


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Look for garbage seldom: a decision leaves no cycles, and to look after each few costs a tenth of the time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _bound(option: str, text: str) -> Bound | None:
    try:
        return parse_bound(text)
    except ValueError as error:
        raise ValueError(f"{option} {error}.") from error


def _named(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError(f"--only is {text[:80]!r}: it must be NAMESPACE/NAME.")
    return namespace, name


def planned(capture: Capture, planner: Planner, selection: Selection) -> Iterator[Step]:
    """Yield the steps that are to be shown, in order. Raises CaptureError."""
    ended = False
    for line in capture:
        if ended:
            continue  # read on: only the end of the file says whether it is whole
        match line:
            case Facts():
                planner.facts(line)
            case Captured() if selection.is_over(line):
                ended = True
            case Captured():
                shown = selection.shows(line)
                for step in planner.decide(line):
                    if shown and selection.shows_object(step):
                        yield step
            case _:
                pass
    if not ended:
        yield from (step for step in planner.end() if selection.shows_object(step))


def _plan(capture: Capture, options: Options, selection: Selection) -> int:
    planner, tally = Planner(capture.header, strict=options.strict), Tally()
    shows = _Table() if options.output == "table" else _Json()
    try:
        for step in planned(capture, planner, selection):
            tally.add(step)
            shows.step(step)
    finally:  # also where a line does not decode: what came before it is shown
        tally.records = {name: len(each.records()) for name, each in planner.registries.items()}
        tally.dead_letters, tally.assumed = len(planner.dead_letters), planner.assuming
        shows.end(tally)
    if planner.assuming:
        tell(COMMAND, ASSUMED)
    if capture.cut is not None:
        return failed(COMMAND, f"{capture.name} was cut, {capture.cut}: this is the plan up to there.", CUT)
    unknown = selection.unknown(planner)
    if not unknown:
        return SHOWN
    sentence = f"{capture.name} tells nothing of {', '.join(unknown)}"
    return failed(COMMAND, f"{sentence}{' up to there' if selection.until else ''}.", REFUSED)


class _Table:
    """Rows for people; in colours on a terminal."""

    def __init__(self) -> None:
        self._console = console() if sys.stdout.isatty() else None
        self._put(head(), "bold")

    def step(self, step: Step) -> None:
        for row in rows(step):
            self._put(row, _STYLES.get(step.result, ""))

    def end(self, tally: Tally) -> None:
        self._put("", "")
        for sentence in foot(tally):
            self._put(sentence, "")
        sys.stdout.flush()

    def _put(self, row: str, style: str) -> None:
        if self._console is None:
            sys.stdout.write(row + "\n")  # rich takes longer for a row than the planner
        else:
            self._console.print(Text(row, style), soft_wrap=True)


class _Json:
    """JSON Lines for programs: a step a line, and the summary in the last one."""

    def step(self, step: Step) -> None:
        self._put(step)

    def end(self, tally: Tally) -> None:
        self._put({"summary": tally.as_data()})
        sys.stdout.flush()

    def _put(self, line: Any) -> None:
        sys.stdout.write(_ENCODER.encode(line).decode() + "\n")
