"""`isvc-sync release`: show what is held back, and end it when a person says that it is true.

Asks over NATS, twice: once to show, and, after the confirmation, once to release exactly what was shown
(`shared/holds.py`).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Literal, TypeVar

import typer
from msgspec import Struct

from cli.connecting import connected, server_of, trouble_of
from cli.ending import REFUSED, Endings, guarded
from cli.holds import Shown, details, listing, listing_as_data, question, results, results_as_data
from cli.output import can_ask, console, failed, write_json
from shared.broker import Broker, BrokerSettings
from shared.errors import UnreachableError
from shared.holds import Answer, Hold, HoldClient, Outcome
from shared.logs import LogSettings, set_up_logging
from shared.naming import NamingSettings
from shared.settings import load
from shared.subjects import Subjects

T = TypeVar("T")

COMMAND: Final = "release"
DONE, HELD, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=HELD, unreachable=UNREACHABLE)


class ReleaseSettings(Struct, frozen=True, kw_only=True):
    """What of a daemon's settings says where its holds are asked for."""

    naming: NamingSettings
    broker: BrokerSettings = BrokerSettings()

    @property
    def subjects(self) -> Subjects:
        return Subjects(self.broker.subject_prefix, self.naming.cluster_name, self.broker.shards)

    @property
    def server(self) -> str:
        """The broker's address for people, without credentials."""
        return server_of(self.broker)


class Options(Struct, frozen=True, kw_only=True):
    """What to release (`ids`, or everything that is held), whether to ask first, and how to show it."""

    ids: tuple[str, ...] = ()
    everything: bool = False
    yes: bool = False
    output: Literal["table", "json"] = "table"

    @property
    def releases(self) -> bool:
        return self.everything or bool(self.ids)

    @property
    def contradiction(self) -> str:
        """Return a sentence when the options do not go together."""
        if self.everything and self.ids:
            return "give ids or --all, not both."
        return "--yes says nothing without ids or --all." if self.yes and not self.releases else ""


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Show or release; return the exit code."""
    if options.contradiction:
        return failed(COMMAND, options.contradiction, REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    settings = load(ReleaseSettings, environ)
    set_up_logging(LogSettings(log_level="ERROR"))  # the trouble of a connection is told by one sentence at the end
    shown = Shown(settings.naming.cluster_name, asyncio.run(_connected(settings, partial(_ask, settings))))
    return _release(options, settings, shown) if options.releases else _show(options, shown)


def _show(options: Options, shown: Shown) -> int:
    if options.output == "json":
        write_json(listing_as_data(shown))
    else:
        console().print(listing(shown))
    if shown.holds:
        return HELD
    return UNREACHABLE if shown.silent else DONE


def _release(options: Options, settings: ReleaseSettings, shown: Shown) -> int:
    chosen = [hold for hold in shown.holds if options.everything or hold.id in options.ids]
    if chosen and not options.yes:
        if not can_ask():
            return failed(COMMAND, "nobody can be asked here: look first, then add --yes.", REFUSED)
        console(stderr=True).print(details(shown, chosen))
        if not typer.confirm(question(chosen), err=True):
            return failed(COMMAND, "nothing was released.", HELD)
    # Until a holder says otherwise; who is silent may hold them.
    outcomes = dict.fromkeys(options.ids, Outcome.UNKNOWN if shown.silent else Outcome.CHANGED)
    if chosen:
        outcomes |= asyncio.run(_connected(settings, partial(_end, settings, shown, chosen)))
    if options.output == "json":
        write_json(results_as_data(outcomes, shown.silent))
    else:
        console().print(results(outcomes, shown.silent) if outcomes else listing(shown))
    return _code(options, shown, outcomes)


def _code(options: Options, shown: Shown, outcomes: Mapping[str, Outcome]) -> int:
    if Outcome.CHANGED in outcomes.values():
        return HELD
    is_open = Outcome.UNKNOWN in outcomes.values() or (options.everything and shown.silent)
    return UNREACHABLE if is_open else DONE


async def _connected(settings: ReleaseSettings, work: Callable[[Broker], Awaitable[T]]) -> T:
    """Do something with the broker. Raises UnreachableError when it does not let us in."""
    async with AsyncExitStack() as stack:
        return await work(await connected(settings.broker, stack))


async def _ask(settings: ReleaseSettings, broker: Broker) -> tuple[Answer, ...]:
    answers = await HoldClient(broker, settings.subjects).ask()
    if not answers:
        trouble = trouble_of(broker)
        raise UnreachableError(
            f"Nobody in cluster {settings.naming.cluster_name!r} answers on {settings.subjects.holds()} at "
            f"{settings.server}: give CLUSTER_NAME, SUBJECT_PREFIX and NATS_URL as the producer has them, and see "
            f"that one producer leads{f' ({trouble})' if trouble else ''}."
        )
    return answers


async def _end(settings: ReleaseSettings, shown: Shown, chosen: Sequence[Hold], broker: Broker) -> dict[str, Outcome]:
    holders = HoldClient(broker, settings.subjects)
    return {hold.id: await holders.release(hold.id, shown.holders_of(hold.id)) for hold in chosen}
