"""`isvc-sync drift`: show where registry and cluster differ, and with `--fix` let it be repaired.

Sees what the consumer's sweep sees (`consumer/survey.py`), now. Like the sweep it writes nothing to a registry: it asks
the owners of the objects to look at them. So consumers must run for a repair, and what they find is theirs to judge.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, Literal

import typer
from msgspec import Struct

from cli.differences import Shown, as_data, listing, reasons, table
from cli.ending import REFUSED, Endings, guarded
from cli.output import can_ask, console, failed, silence_logs, write_json
from cli.reading import Reading, reading
from consumer.settings import ConsumerSettings
from consumer.sweep import Difference, triage
from shared.settings import load

COMMAND: Final = "drift"
AGREED, DIFFERS, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=DIFFERS, unreachable=UNREACHABLE)
_AGAIN_S: Final = 1.0


class Options(Struct, frozen=True, kw_only=True):
    """Whether to repair, whether to ask first, how long to wait for repairs, and how to show it."""

    fix: bool = False
    yes: bool = False
    wait_s: float = 30.0
    output: Literal["table", "json"] = "table"


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Show or repair; return the exit code."""
    if options.yes and not options.fix:
        return failed(COMMAND, "--yes says nothing without --fix.", REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    settings = load(ConsumerSettings, environ)
    silence_logs()
    shown = asyncio.run(_compared(settings, environ))
    return _fix(options, settings, environ, shown) if options.fix else _show(options, shown)


async def _compared(settings: ConsumerSettings, environ: Mapping[str, str]) -> Shown:
    async with AsyncExitStack() as stack:
        return await _survey(await reading(settings, environ, stack))


async def _survey(read: Reading) -> Shown:
    survey = await read.surveyor.survey()
    us = read.deciding.us
    return Shown(us.cluster, us.cluster_id, survey, triage(survey.differences, survey.deployed))


def _show(options: Options, shown: Shown) -> int:
    if options.output == "json":
        write_json(as_data(shown))
    else:
        console().print(listing(shown))
    if shown.drift:
        return DIFFERS
    return UNREACHABLE if shown.unread or shown.survey.skipped else AGREED


def _fix(options: Options, settings: ConsumerSettings, environ: Mapping[str, str], shown: Shown) -> int:
    """Show the plan, ask, let it be done, and show what is left."""
    wanted = tuple(each for each in shown.drift if not shown.fate(each))
    if not wanted:
        return _show(options, shown)
    if not options.yes:
        if not can_ask():
            return failed(COMMAND, "nobody can be asked here: look first, then add --yes.", REFUSED)
        console(stderr=True).print(table(shown, wanted))
        if not typer.confirm(f"Repair {len(wanted)} ({reasons(wanted)})?", err=True):
            return failed(COMMAND, "nothing was repaired.", DIFFERS)
    return _show(options, asyncio.run(_repaired(options, settings, environ, wanted)))


async def _repaired(
    options: Options, settings: ConsumerSettings, environ: Mapping[str, str], wanted: tuple[Difference, ...]
) -> Shown:
    """Ask for looks, and compare again until what was wanted is done, or the time is over; return the last survey."""
    async with AsyncExitStack() as stack:
        read = await reading(settings, environ, stack)
        for each in wanted:
            await read.stream.look(each.key, each.refs)
        deadline = asyncio.get_running_loop().time() + options.wait_s
        objects = {(each.key, each.uid) for each in wanted}
        while True:
            await asyncio.sleep(_AGAIN_S)
            shown = await _survey(read)
            left = objects & {(each.key, each.uid) for each in shown.drift}
            if not left or asyncio.get_running_loop().time() >= deadline:
                return shown
