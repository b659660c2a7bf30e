"""`isvc-sync adopt`: take over from Kubeflow's or Open Data Hub's controller.

Shows what it has left, asks, and lets it be taken over (`adopting.py`). Never while that controller runs: both would
write the same records and labels, and finalizers would come back.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Literal, TypeVar

import typer
from msgspec import Struct

from cli.ending import REFUSED, Endings, guarded
from cli.migration.adoptable import Fate, Finding
from cli.migration.adopting import Adopter, Found, Scope
from cli.migration.adoptions import DONE_BY, as_data, is_left, listing, many, question, table
from cli.objects import Objects
from cli.output import can_ask, console, failed, silence_logs, write_json
from cli.progress import tell
from cli.reading import reading
from consumer.settings import ConsumerSettings
from shared.errors import RefusedToStartError
from shared.settings import load

T = TypeVar("T")

COMMAND: Final = "adopt"
DONE, LEFT_OVER, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=LEFT_OVER, unreachable=UNREACHABLE)
_AGAIN_S: Final = 1.0


class Options(Struct, frozen=True, kw_only=True):
    """What to do, whether to ask first, how long to wait for the owners, and how to show it.

    `controller_stopped`: a person says so, where Deployments cannot be listed.
    """

    scope: Scope = Scope()
    controller_stopped: bool = False
    dry_run: bool = False
    yes: bool = False
    wait_s: float = 30.0
    output: Literal["table", "json"] = "table"

    @property
    def contradiction(self) -> str:
        """Return a sentence when the options do not go together."""
        if self.dry_run and self.yes:
            return "give --dry-run or --yes, not both."
        if self.scope.orphans_max is not None and not self.scope.undeploy:
            return "--max-orphans says nothing without --undeploy-orphans."
        return ""


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Show or take over; return the exit code."""
    if options.contradiction:
        return failed(COMMAND, options.contradiction, REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    settings = load(ConsumerSettings, environ)
    silence_logs()
    tell(COMMAND, "reading registries and cluster ...")
    found = asyncio.run(_connected(options, settings, environ, Adopter.find))
    return _show(options, found) if options.dry_run else _adopt(options, settings, environ, found)


async def _connected(
    options: Options, settings: ConsumerSettings, environ: Mapping[str, str], work: Callable[[Adopter], Awaitable[T]]
) -> T:
    async with AsyncExitStack() as stack:
        read = await reading(settings, environ, stack, COMMAND)
        return await work(Adopter(read, Objects(read.cluster.http, settings.naming), options.scope))


def _show(options: Options, found: Found) -> int:
    if options.output == "json":
        write_json(as_data(found))
    else:
        console().print(listing(found))
    if found.unread or not found.is_compared:
        return UNREACHABLE
    return LEFT_OVER if is_left(found) else DONE


def _adopt(options: Options, settings: ConsumerSettings, environ: Mapping[str, str], found: Found) -> int:
    """Show the plan, ask, let it be done, and show what is left."""
    _require_stopped(options, found)
    wanted = found.of(*DONE_BY)
    if not wanted:
        return _show(options, found)
    if not options.yes:
        if not can_ask():
            return failed(COMMAND, "nobody can be asked here: look first (--dry-run), then add --yes.", REFUSED)
        console(stderr=True).print(table(found, wanted))
        if not typer.confirm(question(wanted), err=True):
            return failed(COMMAND, "nothing was done.", LEFT_OVER)

    async def take_over(adopter: Adopter) -> Found:
        return await _taken_over(options, adopter, wanted)

    return _show(options, asyncio.run(_connected(options, settings, environ, take_over)))


def _require_stopped(options: Options, found: Found) -> None:
    """Raise RefusedToStartError while a predecessor runs, or may."""
    if found.controllers:
        first = found.controllers[0]
        more = f" (and {len(found.controllers) - 1} more)" if len(found.controllers) > 1 else ""
        raise RefusedToStartError(
            f"Deployment {first.namespace}/{first.name}{more} still does this work ({first.why}), and the two would "
            f"fight: {first.way_out}."
        )
    if found.unchecked and not options.controller_stopped:
        raise RefusedToStartError(
            f"whether a predecessor runs could not be checked ({found.unchecked}): get that right, name its namespace "
            "with --controller-namespace, or say --controller-stopped if you know that it is."
        )


async def _taken_over(options: Options, adopter: Adopter, wanted: tuple[Finding, ...]) -> Found:
    """Ask for looks and wait for them, then strip; return what is found after that.

    In this order, so that an object which only its finalizers hold is adopted before it goes.
    """
    asked = tuple(each for each in wanted if each.fate is not Fate.STRIP)
    if asked:
        count = await adopter.ask(asked)
        tell(COMMAND, f"asked for {many(count, 'look')}, waiting up to {options.wait_s:.0f} s ...")
        found = await _waited(options, adopter, asked)
    stripped = [each for each in wanted if each.fate is Fate.STRIP]
    if stripped:
        tell(COMMAND, f"stripping the finalizers of {many(len(stripped), 'object')} ...")
        for each in stripped:
            trouble = await adopter.strip(each)
            if trouble:
                tell(COMMAND, f"{each.key}: {trouble}.")
        found = await adopter.find()
    return found


async def _waited(options: Options, adopter: Adopter, asked: tuple[Finding, ...]) -> Found:
    """Look again until nothing of what was asked for is left, or the time is over."""
    deadline = asyncio.get_running_loop().time() + options.wait_s
    wanted = {each.identity for each in asked}
    while True:
        await asyncio.sleep(_AGAIN_S)
        found = await adopter.find()
        left = wanted & {each.identity for each in found.of(*DONE_BY)}
        if not left:
            return found
        if asyncio.get_running_loop().time() >= deadline:
            undone = "1 was" if len(left) == 1 else f"{len(left)} were"
            tell(COMMAND, f"{undone} not done in time: do consumers run? They do it when they come.")
            return found
