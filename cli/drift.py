"""`isvc-sync drift`: show where registry and cluster differ, and with `--fix` let it be repaired.

Sees what the consumer's sweep sees (`consumer/sweep/survey.py`), now. Like the sweep it writes nothing to a registry:
it asks the owners of the objects to look at them. So consumers must run for a repair, and what they find is theirs to
judge.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Final, Literal

import typer
from msgspec import Struct
from msgspec.structs import replace

from cli.differences import Shown, as_data, listing, reasons, table
from cli.ending import REFUSED, Endings, guarded
from cli.naming import other_names
from cli.output import can_ask, console, failed, silence_logs, write_json
from cli.progress import tell
from cli.reading import Reading, reading
from consumer.settings import ConsumerSettings
from consumer.sweep.compare import Difference, Reason, triage
from consumer.sweep.survey import RegistryFound, Survey
from shared.errors import IsvcSyncError
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
    registries = tuple([await _located(read, each) for each in survey.registries])
    return Shown(
        us.cluster,
        us.cluster_id,
        replace(survey, registries=registries),
        triage(survey.differences, survey.deployed),
        await _other_names(read, survey),
    )


async def _located(read: Reading, found: RegistryFound) -> RegistryFound:
    return replace(found, error=await read.cluster.trouble(found.name, found.error)) if found.error else found


async def _other_names(read: Reading, survey: Survey) -> tuple[str, ...]:
    """Return what the records of our cluster id call the cluster besides. A survey keeps no records: read them again.

    Only where the stream does not know some: under a mistyped name it knows none.
    """
    if not any(each.reason is Reason.UNKNOWN for each in survey.differences):
        return ()
    records = []
    for lookup in await read.cluster.registries.everywhere():
        with contextlib.suppress(IsvcSyncError):  # the survey has told of that, or there was no need to
            async with aclosing(lookup.place.registry.all_records()) as every:
                records += [record async for record in every]
    return other_names(records, read.deciding.us)


def _show(options: Options, shown: Shown) -> int:
    if options.output == "json":
        write_json(as_data(shown))
    else:
        console().print(listing(shown))
    if shown.drift:
        return DIFFERS
    return UNREACHABLE if shown.unread or shown.survey.skipped or not shown.is_compared else AGREED


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
            if not left:
                return shown
            if asyncio.get_running_loop().time() >= deadline:
                undone = "1 was" if len(left) == 1 else f"{len(left)} were"
                tell(COMMAND, f"{undone} not repaired in time: do consumers run? They do it when they come.")
                return shown
