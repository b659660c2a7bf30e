"""`isvc-sync explore FILE`: a capture under many seeds of order, delay, death and error; it must end as planned."""

import contextlib
import shlex
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.ending import REFUSED, Endings, guarded
from cli.output import console, failed, silence_logs, write_json
from cli.progress import tell
from replay.exploring.explorer import Explorer, Finding
from replay.exploring.story import Plan, Story
from replay.files import reading
from replay.plan_text import ASSUMED, clean

COMMAND: Final = "explore"
SAME, DIFFERS, CUT = 0, 1, 3
_ENDINGS: Final = Endings(unread=REFUSED, cut=CUT)  # before all seeds were explored
_SHOWN_MAX: Final = 10  # failing seeds, and differences of each
_TOLD: Final = 10  # how often it is said how far it is


class Options(Struct, frozen=True, kw_only=True):
    """`seeds` explorations, the first one of `seed`."""

    file: Path
    seed: int = 0
    seeds: int = 100
    workers: int = 4
    output: Literal["table", "json"] = "table"


def run(options: Options) -> int:
    """Explore; return the exit code."""
    return guarded(COMMAND, _ENDINGS, lambda: _run(options))


def _run(options: Options) -> int:
    silence_logs()
    with reading(options.file) as capture:
        story = Story.of(capture)
    explorer = Explorer(story, options.workers)
    if any(explorer.plan.assumed.values()):
        tell(COMMAND, ASSUMED)
    findings = _explored(explorer, options)
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more
        _show(options, explorer, findings)
    if findings:
        return DIFFERS
    if capture.cut is not None:
        return failed(COMMAND, f"{capture.name} was cut, {capture.cut}: nothing differs up to there.", CUT)
    return SAME


def command_of(file: Path, seed: int, workers: int) -> str:
    """Return the command that explores one seed again."""
    return f"isvc-sync explore {shlex.quote(str(file))} --seed {seed} --seeds 1 --workers {workers}"


def _explored(explorer: Explorer, options: Options) -> list[Finding]:
    findings: list[Finding] = []
    every = max(1, options.seeds // _TOLD)
    for done in range(options.seeds):
        finding = explorer.explore(options.seed + done)
        if finding is not None:
            findings.append(finding)
            tell(COMMAND, f"seed {finding.seed} differs: {clean(finding.sentence)}.")
        elif done and done % every == 0:
            tell(COMMAND, f"{done} of {options.seeds} seeds.")
    return findings


def _show(options: Options, explorer: Explorer, findings: list[Finding]) -> None:
    if options.output == "json":
        write_json(_data(options, explorer, findings))
    else:
        console().print(_listing(options, explorer, findings))


def _data(options: Options, explorer: Explorer, findings: list[Finding]) -> dict[str, Any]:
    plan = explorer.plan
    return {
        "events": len(explorer.story.events),
        "objects": len(_objects(explorer.story)),
        "workers": options.workers,
        "seed": options.seed,
        "seeds": options.seeds,
        "failing": len(findings),
        "findings": [
            {
                "seed": each.seed,
                "command": command_of(options.file, each.seed, options.workers),
                "fault": each.fault or None,
                "differences": each.differences,
            }
            for each in findings
        ],
        "struck": dict(sorted(explorer.struck.items())),
        "leftOut": plan.left_out,
        "moved": sorted(plan.unsaid.homes),
    }


def _listing(options: Options, explorer: Explorer, findings: list[Finding]) -> RenderableType:
    struck, story = sum(explorer.struck.values()), explorer.story
    parts: list[RenderableType] = [
        Text(
            f"{len(story.events)} events of {len(_objects(story))} objects, {options.workers} workers, "
            f"{options.seeds} seeds from {options.seed}: {struck} faults of {len(explorer.struck)} kinds struck."
        ),
        *(Text(sentence) for sentence in _left_out(explorer.plan)),
    ]
    if not findings:
        return Group(*parts, Text("The registry ended as planned every time."))
    parts += [Text(f"{len(findings)} of {options.seeds} seeds ended otherwise than planned.", "bold red")]
    for finding in findings[:_SHOWN_MAX]:
        parts += [Text(), *_of_finding(finding, options)]
    if len(findings) > _SHOWN_MAX:
        parts += [Text(), Text(f"{len(findings) - _SHOWN_MAX} more seeds: -o json shows all.")]
    return Group(*parts)


def _of_finding(finding: Finding, options: Options) -> list[RenderableType]:
    shown: list[RenderableType] = [
        Text(f"Seed {finding.seed}", "bold"),
        Text(command_of(options.file, finding.seed, options.workers)),
    ]
    if finding.fault:
        return [*shown, Text(clean(finding.fault))]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("Where", "What", "Planned", "Found"):
        table.add_column(title, overflow="fold")
    for each in finding.differences[:_SHOWN_MAX]:
        table.add_row(*(Text(clean(cell) or "-") for cell in (each.where, each.field, each.planned, each.found)))
    more = len(finding.differences) - _SHOWN_MAX
    return [*shown, table, *([Text(f"{more} more differences.")] if more > 0 else [])]


def _left_out(plan: Plan) -> list[str]:
    sentences = [f"Not compared: uid {uid}, {why}." for uid, why in plan.left_out.items()]
    if plan.unsaid.homes:
        count = len(plan.unsaid.homes)
        sentences.append(
            f"{count} {'object' if count == 1 else 'objects'} moved to another registry: only the last one is compared."
        )
    return sentences


def _objects(story: Story) -> set[str]:
    return {str(line.event.key) for line in story.events}
