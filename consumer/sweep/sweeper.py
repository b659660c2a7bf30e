"""Puts the sweep of the consumer process together: what it reads with, whom it tells, and what it reads anew."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from consumer.connections import Connections
from consumer.plan import PlanSettings
from consumer.sweep.compare import Triage
from consumer.sweep.rounds import Hooks, Sweeper
from consumer.sweep.stream import SweptStream
from consumer.sweep.survey import Survey, Surveyor
from shared.holds import HoldServer
from shared.objects import ObjectKey
from shared.telemetry import Metrics, Telemetry

SWEEP_SHARD: Final = 0  # whoever owns it sweeps


class Owner(Protocol):
    """`fence.Fence`, as far as the sweep asks it."""

    def owns(self, shard: int) -> bool: ...


class Decider(Protocol):
    """Who decides by settings that may change while it runs."""

    def use(self, deciding: PlanSettings) -> None: ...


class Charge(Struct, frozen=True):
    """Whose sweep it is, and how often.

    `name` is the process's own, `interval_s` in seconds. `deciders` are told when KServe's lists of keys have changed.
    """

    owner: Owner
    name: str
    interval_s: float
    deciders: Sequence[Decider]


def sweeper(connections: Connections, telemetry: Telemetry, charge: Charge) -> Sweeper:
    """Return the sweep of this process; nothing runs yet."""
    deciding, dead_letters = connections.deciding, connections.dead_letters
    stream = SweptStream(connections.broker, connections.subjects, connections.streams.events, connections.cluster_id)

    async def dead() -> frozenset[ObjectKey]:
        await dead_letters.load()  # other owners bury, too
        return dead_letters.entries()

    surveyor = Surveyor(stream, connections.surveyed, dead, deciding)
    server = HoldServer(connections.broker, connections.subjects, connections.cluster_id, charge.name)
    hooks = Hooks(
        owns=lambda: charge.owner.owns(SWEEP_SHARD),
        refresh=_refresh(connections, (*charge.deciders, surveyor)),
        on_swept=partial(_count, telemetry.metrics),
    )
    return Sweeper(surveyor.survey, stream, server, hooks, charge.interval_s)


def _refresh(connections: Connections, deciders: Sequence[Decider]) -> Callable[[], Awaitable[None]]:
    """Return what reads KServe's lists anew; they say what a write-back costs."""
    known = connections.deciding

    async def refresh() -> None:
        nonlocal known
        lists = await connections.kserve_lists()
        if lists != known.target.lists:
            known = replace(known, target=replace(known.target, lists=lists))
            for decider in deciders:
                decider.use(known)

    return refresh


def _count(metrics: Metrics, survey: Survey | None, triage: Triage | None) -> None:
    metrics.drift_objects.set(sum(each.is_drift for each in survey.differences) if survey else 0)
    metrics.objects.set(len(triage.held) if triage else 0, {"state": "held"})
