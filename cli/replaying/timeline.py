"""`isvc-sync timeline FILE -o PAGE`: what happened, and what was decided, as one page for a browser.

The page holds all that it shows and loads nothing (`replay/timeline/html.py`); a capture that was cut makes a page that
says so.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.text import Text

from cli.ending import REFUSED, Endings, about, guarded
from cli.output import console, failed, many, silence_logs
from cli.progress import tell
from cli.writable import in_the_way
from replay.capture import Action, Captured, Facts
from replay.files import Capture, reading
from replay.placing import beside
from replay.planning import Planner
from replay.timeline.data import Page
from replay.timeline.html import html
from replay.timeline.lanes import Timeline

COMMAND: Final = "timeline"
WRITTEN, CUT = 0, 3
_ENDINGS: Final = Endings(unread=WRITTEN, cut=CUT)
_SLOW_BYTES: Final = 50_000_000  # a browser needs seconds to read more


class Options(Struct, frozen=True, kw_only=True):
    """What to draw, and where to. `only`: NAMESPACE/NAME, none for all. `force`: write over a file that is there."""

    file: Path
    output: Path
    only: tuple[str, ...] = ()
    force: bool = False

    @property
    def objects(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of each object that is wanted."""
        return frozenset((namespace, name) for namespace, _, name in (each.partition("/") for each in self.only))

    @property
    def contradiction(self) -> str:
        """Return a sentence when this cannot be done. Raises OSError where the page cannot be written."""
        for text in self.only:
            parts = text.split("/")
            if len(parts) != 2 or not all(parts):
                return f"--only is {text[:80]!r}: it must be NAMESPACE/NAME."
        return in_the_way(self.output, force=self.force, source=self.file)


def run(options: Options) -> int:
    """Write the page; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _run(options))


def _run(options: Options) -> int:
    refused = options.contradiction
    if refused:
        return failed(COMMAND, refused, REFUSED)
    silence_logs()
    with reading(options.file) as capture:
        page = drawn(capture, options.objects)
    return _write(options, page, capture)


def drawn(capture: Capture, only: frozenset[tuple[str, str]] = frozenset()) -> Page:
    """Return the page's data. All objects are decided, so that ids are those of `replay`. Raises CaptureError."""
    timeline, planner = Timeline(capture.header, only or None), Planner(capture.header)
    for line in capture:
        match line:
            case Facts():
                planner.facts(line)
            case Captured():
                *looks, step = planner.decide(line)
                for look in looks:
                    timeline.look(look)
                timeline.event(line, step)
            case Action():
                timeline.action(line)
            case _:
                pass
    for look in planner.end():
        timeline.look(look)
    return timeline.page(capture.cut)


def _write(options: Options, page: Page, capture: Capture) -> int:
    if options.only and not page.objects:
        return failed(COMMAND, f"{capture.name} tells nothing of {', '.join(options.only)}.", REFUSED)
    text = html(page).encode()
    with about(options.output), beside(options.output) as made:
        made.file.write(text)
    if len(text) > _SLOW_BYTES:
        tell(COMMAND, f"{len(text) / 1e6:,.0f} MB are slow to open: --only NAMESPACE/NAME draws less.")
    told = f"{many(len(page.events.at), 'event')} of {many(len(page.objects), 'object')}, {len(text) / 1e6:.2f} MB"
    console().print(Text(f"{options.output}: {told}. Press ? in it."))
    if capture.cut is not None:
        return failed(COMMAND, f"{capture.name} was cut, {capture.cut}: the page shows what is there.", CUT)
    return WRITTEN
