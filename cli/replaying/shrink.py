"""`isvc-sync shrink FILE OUT`: the few lines of a capture that a failing exploration needs."""

import contextlib
import time
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from rich.text import Text

from cli.ending import REFUSED, Endings, about, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.progress import tell
from cli.replaying.explore import command_of
from cli.writable import in_the_way
from replay.capture import Captured, Facts
from replay.exploring.shrinking import Shrinker, Shrunk
from replay.exploring.story import Story
from replay.files import reading, writing
from replay.plan_text import clean
from replay.upkeep.rewriting import encode_over

COMMAND: Final = "shrink"
SHRUNK, HOLDS, CUT = 0, 1, 3
_ENDINGS: Final = Endings(unread=REFUSED, cut=CUT)  # before anything was written
_STDIN: Final = Path("-")


class Options(Struct, frozen=True, kw_only=True):
    """Which capture to shrink into which file. The first of `seeds` seeds from `seed` on that fails is followed."""

    file: Path
    into: Path
    seed: int = 0
    seeds: int = 100
    workers: int = 4
    force: bool = False
    output: Literal["table", "json"] = "table"


def run(options: Options) -> int:
    """Shrink; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _run(options))


def _run(options: Options) -> int:
    began_s = time.monotonic()
    refused = _refusal(options)
    if refused:
        return failed(COMMAND, refused, REFUSED)
    silence_logs()
    try:
        story, shrunk, is_cut = _shrunk(options)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("interrupted: nothing was written.") from error
    if shrunk is None:
        code = CUT if is_cut else HOLDS
        return failed(COMMAND, f"none of {options.seeds} seeds from {options.seed} on fails.", code)
    _write(options, story, shrunk)
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        _show(options, story, shrunk, time.monotonic() - began_s)
    return SHRUNK


def _shrunk(options: Options) -> tuple[Story, Shrunk | None, bool]:
    """Return the story, what is left of it (None where no seed fails), and whether the file was cut.

    Raises CaptureError, OSError.
    """
    with reading(options.file) as capture:
        story = Story.of(capture)
    if capture.cut is not None:
        tell(COMMAND, f"{capture.name} was cut, {capture.cut}: what is there is shrunk.")
    shrinker = Shrinker(story, options.workers, lambda sentence: tell(COMMAND, clean(sentence)))
    shrunk = shrinker.shrink(range(options.seed, options.seed + options.seeds))
    return story, shrunk, capture.cut is not None


def _refusal(options: Options) -> str:
    if options.file == _STDIN:
        return "the file is read twice: standard input cannot be."
    return in_the_way(options.into, force=options.force, source=options.file)


def _write(options: Options, story: Story, shrunk: Shrunk) -> None:
    """Write the lines that are left as they are, with what they need of what the registries held."""
    left = {id(line) for line in shrunk.story.events}
    chosen = [id(line) in left for line in story.events]
    into = options.into
    with reading(options.file) as capture, about(into), writing(into, capture.header_text) as writer:
        events, facts = iter(chosen), iter(shrunk.facts)
        for line, text in capture.with_text():
            match line:
                case Captured():
                    if next(events):
                        writer.write_text(text, line)
                case Facts(at="start"):
                    part = next(facts)
                    if part is not None:
                        writer.write_text(text if part == line else encode_over(part, text), part)
                case _:
                    pass


def _show(options: Options, story: Story, shrunk: Shrunk, took_s: float) -> None:
    command = command_of(options.into, shrunk.finding.seed, options.workers)
    before, after = len(story.events), len(shrunk.story.events)
    if options.output == "json":
        write_json(
            {
                "eventsBefore": before,
                "events": after,
                "explorations": shrunk.explorations,
                "seconds": round(took_s, 1),
                "seed": shrunk.finding.seed,
                "command": command,
                "fault": shrunk.finding.fault or None,
                "differences": shrunk.finding.differences,
            }
        )
        return
    left = f"{after} of {before} events are left in {options.into}"
    effort = f"after {shrunk.explorations} explorations in {took_s:.1f} s"
    for line in (f"{left}, {effort}.", f"{clean(shrunk.finding.sentence)}.", command):
        console().print(Text(line), soft_wrap=True)
