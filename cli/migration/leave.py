"""`isvc-sync leave`: take our ids off the objects, where that is free; before isvc-sync is uninstalled.

Records stay, as they are the audit trail, and nothing of ours holds an object. What is left to remove are the ids on
the objects, and only while no consumer would write them again.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Literal

import typer
from msgspec import Struct
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cli.connecting import connected, is_known, server_of
from cli.ending import REFUSED, Endings, guarded
from cli.migration.departures import LEFT, Fate, Mark
from cli.migration.leaving import Found, Leaver
from cli.naming import doubt
from cli.objects import Objects
from cli.output import can_ask, console, failed, silence_logs, write_json
from cli.progress import tell
from cli.reading import Cluster, cluster_reading
from consumer.ownership.leases import LeaseStream
from consumer.settings import ConsumerSettings
from shared.broker import Broker
from shared.errors import IsvcSyncError, PermanentError, RefusedToStartError, SettingsError
from shared.settings import load
from shared.startup import require_own_cluster
from shared.streams import stream_names
from shared.subjects import Subjects

if TYPE_CHECKING:
    from rich.console import RenderableType

COMMAND: Final = "leave"
DONE, LEFT_OVER, UNREACHABLE = 0, 1, 3
_ENDINGS: Final = Endings(unread=LEFT_OVER, unreachable=UNREACHABLE)
_REWRITTEN_S: Final = 2.0  # within which a consumer that writes ids would have written one again
_SAY_SO: Final = "Or say --consumers-stopped if you know that none runs."


class Options(Struct, frozen=True, kw_only=True):
    """What may be restarted, whether to ask first, and how to show it.

    `consumers_stopped`: a person says so, where the broker is gone already.
    """

    restart_pods: bool = False
    consumers_stopped: bool = False
    dry_run: bool = False
    yes: bool = False
    output: Literal["table", "json"] = "table"


def run(options: Options, environ: Mapping[str, str] = os.environ) -> int:
    """Show or remove; return the exit code."""
    if options.dry_run and options.yes:
        return failed(COMMAND, "give --dry-run or --yes, not both.", REFUSED)
    return guarded(COMMAND, _ENDINGS, lambda: _run(options, environ))


def _run(options: Options, environ: Mapping[str, str]) -> int:
    settings = load(ConsumerSettings, environ)
    silence_logs()
    found = asyncio.run(_found(options, settings, environ))
    return _show(options, found) if options.dry_run else _leave(options, settings, environ, found)


async def _found(options: Options, settings: ConsumerSettings, environ: Mapping[str, str]) -> Found:
    async with AsyncExitStack() as stack:
        cluster = await cluster_reading(settings, environ, COMMAND, stack)
        identity = cluster.deciding.us.cluster_id
        members = frozenset[str]() if options.consumers_stopped else await _members(settings, identity)
        if members and settings.write_back.write_back != "off" and not options.dry_run:
            raise RefusedToStartError(
                f"consumers run ({', '.join(sorted(members))}) and would write the ids again: stop them, or restart "
                "them with WRITE_BACK=off and set it here, too."
            )
        tell(COMMAND, "reading cluster and registries ...")
        return await _leaver(options, settings, cluster).find(members)


def _leaver(options: Options, settings: ConsumerSettings, cluster: Cluster) -> Leaver:
    return Leaver(cluster, Objects(cluster.http, settings.naming), restart_pods=options.restart_pods)


async def _members(settings: ConsumerSettings, cluster_id: str) -> frozenset[str]:
    """Return the consumers of this cluster that run.

    Raises RefusedToStartError where the broker does not know this cluster: then consumers may run all the same, with
    another broker or under another name.
    """
    names = stream_names(settings.broker.subject_prefix)
    subjects = Subjects(settings.broker.subject_prefix, settings.naming.cluster_name, settings.broker.shards)
    async with AsyncExitStack() as stack:
        try:
            broker = await connected(settings.broker, stack)
            await require_own_cluster(broker, names.events, subjects, cluster_id)
            await _require_known(broker, subjects, settings)
            return await LeaseStream(broker, subjects, names.lease, names.events).members()
        except (RefusedToStartError, SettingsError):
            raise
        except PermanentError as error:  # no stream of leases
            raise RefusedToStartError(f"whether consumers run cannot be seen ({error}). {_SAY_SO}") from error
        except IsvcSyncError as error:
            raise type(error)(f"{str(error).rstrip('.')}. {_SAY_SO}") from error


async def _require_known(broker: Broker, subjects: Subjects, settings: ConsumerSettings) -> None:
    if not await is_known(broker, subjects):
        raise RefusedToStartError(
            f"whether consumers run cannot be seen, as NATS at {server_of(settings.broker)} has nothing of a cluster "
            f"{subjects.cluster!r} in a stream {stream_names(subjects.prefix).events}: give CLUSTER_NAME, "
            "SUBJECT_PREFIX and NATS_URL as the consumers have them, or say --consumers-stopped if you know that none "
            "runs."
        )


def _show(options: Options, found: Found) -> int:
    if options.output == "json":
        write_json(as_data(found))
    else:
        console().print(listing(found))
    if found.unread:
        return UNREACHABLE
    return LEFT_OVER if found.is_left else DONE


def _leave(options: Options, settings: ConsumerSettings, environ: Mapping[str, str], found: Found) -> int:
    """Show the plan, ask, remove, and show what is left."""
    wanted = found.of(Fate.REMOVE)
    if not wanted:
        return _show(options, found)
    if not options.yes:
        if not can_ask():
            return failed(COMMAND, "nobody can be asked here: look first (--dry-run), then add --yes.", REFUSED)
        console(stderr=True).print(table(wanted))
        if not typer.confirm(f"Remove {_many(len(wanted), 'id')}?", err=True):
            return failed(COMMAND, "nothing was removed.", LEFT_OVER)
    return _show(options, asyncio.run(_left(options, settings, environ, found)))


async def _left(options: Options, settings: ConsumerSettings, environ: Mapping[str, str], before: Found) -> Found:
    """Remove what was shown and may be removed still; return what is found after that.

    Whatever the broker said of consumers: one that it does not know would write the ids again, too.
    """
    async with AsyncExitStack() as stack:
        leaver = _leaver(options, settings, await cluster_reading(settings, environ, COMMAND, stack))
        shown = {each.identity for each in before.of(Fate.REMOVE)}
        now = await leaver.find(before.members)
        wanted = [each for each in now.of(Fate.REMOVE) if each.identity in shown]
        tell(COMMAND, f"removing {_many(len(wanted), 'id')} ...")
        removed = set()
        for each in wanted:
            trouble = await leaver.remove(each)
            if trouble:
                tell(COMMAND, f"{each.live.key}: {trouble}.")
            else:
                removed.add(each.identity)
        if removed:
            await asyncio.sleep(_REWRITTEN_S)
        after = await leaver.find(before.members)
        if any(each.identity in removed for each in after.of(*LEFT)):
            where = "" if before.members else ", on another broker or under another CLUSTER_NAME or SUBJECT_PREFIX"
            tell(COMMAND, f"an id that was removed stands there again: a consumer runs without WRITE_BACK=off{where}.")
        return after


def listing(found: Found) -> "RenderableType":
    """Return everything, for people."""
    parts: list[RenderableType] = [table(found.marks), Text()] if found.marks else []
    return Group(*parts, *(Text(sentence) for sentence in sentences(found)))


def table(marks: tuple[Mark, ...]) -> Table:
    """Return one row for each id; names are folded, never cut."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("Object", overflow="fold")
    drawn.add_column("Id", overflow="fold")
    drawn.add_column("As", no_wrap=True)
    drawn.add_column("Fate", no_wrap=True)
    drawn.add_column("A removal restarts", overflow="fold")
    for each in marks:
        cells = (each.value, each.form, each.fate, each.restarts)
        drawn.add_row(Text(str(each.live.key), "cyan"), *map(Text, cells))
    return drawn


def sentences(found: Found) -> list[str]:
    """Return the summary."""
    ours = len(found.marks) - len(found.of(Fate.FOREIGN))
    carried = f"{ours or 'no'} {'id' if ours == 1 else 'ids'} of ours on {_many(found.objects, 'object')}"
    told = [f"Cluster {found.cluster}, id {found.cluster_id}: {carried}."]
    if found.of(Fate.RESTARTS):
        stay = "stays" if len(found.of(Fate.RESTARTS)) == 1 else "stay"
        told.append(f"{_many(len(found.of(Fate.RESTARTS)), 'id')} {stay}, as a removal restarts pods: --restart-pods")
    if found.of(Fate.FOREIGN):
        told.append(f"{_many(len(found.of(Fate.FOREIGN)), 'id')} no record of ours vouches for: left alone.")
    if found.members:
        told.append(f"Consumers run: {', '.join(found.members)}. They must have WRITE_BACK=off.")
    return [*told, *doubt(found.other_names, found.cluster), *(f"Not read: {each}" for each in found.unread)]


def as_data(found: Found) -> dict[str, Any]:
    """Return everything, for programs."""
    return {
        "cluster": found.cluster,
        "clusterId": found.cluster_id,
        "objects": found.objects,
        "consumers": found.members,
        "unread": found.unread,
        "namedInRecords": found.other_names,
        "ids": [
            {
                "kind": each.live.key.kind,
                "namespace": each.live.key.namespace,
                "name": each.live.key.name,
                "uid": each.live.uid,
                "form": each.form,
                "id": each.value,
                "cost": each.cost,
                "fate": each.fate,
            }
            for each in found.marks
        ],
    }


def _many(count: int, one: str) -> str:
    return f"{count} {one if count == 1 else one + 's'}"
