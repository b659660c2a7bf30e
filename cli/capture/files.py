"""`isvc-sync redact`, `validate`, `stats`: what can be done to a capture file without cluster, broker and registry."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from rich.text import Text

from cli.capture.recording import Progress, anonymizer_of
from cli.capture.shown import as_data, listing
from cli.ending import REFUSED, Endings, about, guarded
from cli.output import console, failed, many, silence_logs, write_json
from cli.writable import in_the_way
from replay.capture import Captured, CaptureError, CutError, Footer, Header
from replay.files import Capture, reading, writing
from replay.upkeep.redaction import Redactor
from replay.upkeep.statistics import Statistics
from replay.upkeep.validation import Problem, Validation
from shared.errors import BadEventError

FINE, FOUND, CUT = 0, 1, 3
_ENDINGS: Final = Endings(unread=FINE, cut=CUT)
_VALIDATE_ENDINGS: Final = Endings(unread=FINE, no_capture=FOUND, cut=CUT)
_PROBLEMS_MAX: Final = 100
_STDIN: Final = Path("-")

Output = Literal["table", "json"]


class Redacting(Struct, frozen=True, kw_only=True):
    """Which file to redact into which, and how."""

    file: Path
    into: Path
    anonymous: bool = False
    salt: str = ""
    force: bool = False
    output: Output = "table"


def redact(options: Redacting) -> int:
    """Write a file again, redacted; return the exit code."""
    refused = "--salt says nothing without --anonymous." if options.salt and not options.anonymous else ""
    if options.anonymous and options.file == _STDIN:
        refused = "--anonymous reads the file twice: standard input cannot be."
    if refused:
        return failed("redact", refused, REFUSED)
    return guarded("redact", _ENDINGS, lambda: _redact(options))


def validate(file: Path, output: Output) -> int:
    """Check a file; return the exit code."""
    return guarded("validate", _VALIDATE_ENDINGS, lambda: _validate(file, output))


def stats(file: Path, output: Output) -> int:
    """Count what is in a file; return the exit code."""
    return guarded("stats", _ENDINGS, lambda: _stats(file, output))


def _redact(options: Redacting) -> int:
    refused = in_the_way(options.into, force=options.force, source=options.file)
    if refused:
        return failed("redact", refused, REFUSED)
    silence_logs()
    found, left_out = Statistics(), 0
    namespaces = frozenset(_namespaces(options.file)) if options.anonymous else frozenset()
    with Progress("redact") as progress, reading(options.file) as capture:
        header = capture.header
        anonymizer = anonymizer_of(header, options.salt, namespaces) if options.anonymous else None
        redactor = Redactor(header, anonymizer)
        header_text = redactor.header_text(capture.header_text)
        with about(options.into), writing(options.into, header_text, footer=False) as writer:
            whole = False
            for line, text in capture.with_text():
                if isinstance(line, Footer):
                    whole = True  # its own follows, since events may have been left out
                    continue
                if isinstance(line, Header):
                    raise CaptureError(f"{capture.name}, line {capture.number}: is a second header")
                try:
                    written = redactor.rewritten(line, text)
                except BadEventError as error:
                    progress.tell(f"An event was left out: {error}.")
                    written = None
                if written is None:
                    left_out += 1
                    continue
                writer.write_text(written, line)
                found.take(line)
                progress.at(f"{capture.events} events redacted")
            if whole:
                writer.end()
    if options.output == "json":
        write_json({"file": str(options.into), "leftOut": left_out, "cut": capture.cut, "events": found.events})
    else:
        sentence = f"{options.into}: {found.events} events, {redactor.header.redaction.profile}"
        console().print(Text(sentence + (f"; {left_out} lines were left out" if left_out else "")))
    return _ended("redact", capture, FOUND if left_out else FINE)


def _validate(file: Path, output: Output) -> int:
    silence_logs()
    try:
        return _validated(file, output)
    except CaptureError as error:
        if output == "json":
            is_cut, why = isinstance(error, CutError), str(error)
            problems = [] if is_cut else [{"line": 1, "problem": why}]
            write_json(_verdict(0, len(problems), problems, why if is_cut else None))
        raise


def _verdict(events: int, count: int, shown: list[dict[str, Any]], cut: str | None) -> dict[str, Any]:
    return {"events": events, "problems": count, "shown": shown, "cut": cut}


def _validated(file: Path, output: Output) -> int:
    with reading(file) as capture:
        validation = Validation(capture)
        problems: list[Problem] = []
        count = 0
        for problem in validation.problems():
            count += 1
            if len(problems) < _PROBLEMS_MAX:
                problems.append(problem)
    if output == "json":
        shown = [{"line": each.line, "problem": each.what} for each in problems]
        write_json(_verdict(capture.events, count, shown, capture.cut))
    else:
        for each in problems:
            console().print(Text(f"line {each.line} {each.what}"))
        if count > len(problems):
            console().print(Text(f"and {count - len(problems)} more"))
        verdict = many(count, "problem") if count else "no problem"
        console().print(Text(f"{file}: {capture.events} events in {capture.number} lines, {verdict}"))
    return _ended("validate", capture, FOUND if count else FINE)


def _stats(file: Path, output: Output) -> int:
    silence_logs()
    found = Statistics()
    with reading(file) as capture:
        for line, _ in capture.with_text():
            found.take(line)
    if output == "json":
        write_json({"file": str(file), "cut": capture.cut} | as_data(found, file))
    else:
        console().print(listing(found, file))
    return _ended("stats", capture, FINE)


def _namespaces(file: Path) -> Iterator[str]:
    with reading(file) as capture:
        for line in capture:
            if isinstance(line, Captured):
                yield line.event.key.namespace


def _ended(command: str, capture: Capture, code: int) -> int:
    """Return the exit code, after a warning about a file that was cut."""
    if capture.cut is None:
        return code
    failed(command, f"{capture.name} was cut: {capture.cut}. What stands before it was read.", CUT)
    return code if code == FOUND else CUT
