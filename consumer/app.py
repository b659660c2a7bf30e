"""The consumer process: puts the parts together, runs them, and takes them down in order.

One pull loop for each shard that is ours feeds the one worker. At the end each shard is given away: no more pulls, what
is at hand is finished, the rest stays un-acknowledged for the next owner, who may begin at once.
"""

import asyncio
import logging
import random
import secrets
import socket
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from consumer.act import Actor
from consumer.connections import Connections, connect
from consumer.delivery.events import EventStream
from consumer.delivery.work import Work, receive
from consumer.delivery.workqueue import WorkQueue
from consumer.handle import Handler, Hooks, Sources
from consumer.inbox import Durable, PullLoop
from consumer.intake import Border, Intake, Once
from consumer.ownership.fence import Fence, FencedDeadLetters, Held
from consumer.ownership.leases import LeaseStream
from consumer.ownership.suspects import Suspects
from consumer.ownership.targets import Me
from consumer.reconcile import Reconciler
from consumer.settings import ConsumerSettings, OwnershipSettings
from consumer.shards import Hooks as ShardHooks
from consumer.shards import Shards
from consumer.spans import Handle, traced
from consumer.sweep.rounds import Sweeper
from consumer.sweep.stream import require_still_ours
from consumer.sweep.sweeper import Charge, sweeper
from consumer.waiting import WaitingForKubernetes
from consumer.worker import Custody, Worker
from shared import logs
from shared.errors import BadEventError, TransientError
from shared.health import Health, serving
from shared.running import together
from shared.startup import until_it_works
from shared.streams import ensure_consumer
from shared.telemetry import Telemetry

logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 10.0  # a third of the durables' ack_wait
DRAIN_S: Final = 6.0  # one request may take 5 s
ROUND_TRIP_AGE_S_MAX: Final = 10.0
# Of the fence: where the system has one that goes on while the machine sleeps, a machine that wakes up knows it.
CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Parts(msgspec.Struct, frozen=True):
    """What runs."""

    leases: LeaseStream
    shards: Shards
    intake: Intake
    worker: Worker
    reconciler: Reconciler
    handle: Handle
    sweeper: Sweeper


async def run(settings: ConsumerSettings, telemetry: Telemetry) -> None:
    """Consume until cancelled.

    Raises SettingsError and RefusedToStartError at start; later UnreachableError when the broker is lost for good.
    """
    health = Health(stuck_after_s=settings.health.health_stuck_after_s)
    ready = asyncio.Event()
    health.add_check("start", lambda: None if ready.is_set() else "still connecting")
    async with AsyncExitStack() as stack:
        port = stack.enter_context(serving(settings.health, health, telemetry.scrape))
        logger.info("health is served", extra={"port": port})
        ticking = _task(stack, "ticking", health.keep_ticking(lambda: telemetry.metrics.live_ticks.add(1)))
        fence = Fence(settings.broker.shards, partial(time.clock_gettime, CLOCK))
        connections = await connect(settings, telemetry, fence, stack)
        health.add_check("broker", partial(_broker_check, connections))
        me = _me(settings.ownership, connections.cluster_id)
        stack.enter_context(logs.fields(member=me.member))
        parts = assemble(settings, telemetry, fence, connections, me)
        health.add_check("group", parts.shards.readiness)
        stack.push_async_callback(parts.worker.drain, 0.0)
        handling = _task(stack, "worker", parts.worker.run(parts.handle))
        keeping = _task(stack, "keep alive", parts.worker.keep_alive(KEEP_ALIVE_S))
        gauging = _task(stack, "gauges", _gauge(telemetry, connections, parts))
        telling = _task(stack, "notices", connections.notices.run())
        await _join(parts, stack)
        reading = _task(stack, "intake", parts.intake.run())
        owning = _task(stack, "shards", parts.shards.run())
        sweeping = _task(stack, "sweep", parts.sweeper.run())
        running = (ticking, handling, keeping, gauging, telling, reading, owning, sweeping)
        for task in running:
            health.watch_task(task)
        ready.set()
        logger.info("consuming", extra={"cluster": settings.naming.cluster_name, "shards": len(fence.owned)})
        await together(connections.lost, *running)


async def _join(parts: Parts, stack: AsyncExitStack) -> None:
    """Become a member of the group, until the stack is closed: then everything at hand is finished and given away."""
    shards = parts.shards
    stack.push_async_callback(await until_it_works("the leases", partial(parts.leases.watch, shards.kick)))
    stack.push_async_callback(parts.intake.close)
    # In a task of its own: this one is cancelled by then, and calls to JetStream would say so (`translated`).
    stack.push_async_callback(lambda: asyncio.create_task(shards.leave(), name="leaving the group"))
    await until_it_works("the group of consumers", partial(shards.start, parts.intake))


def assemble(settings: ConsumerSettings, telemetry: Telemetry, fence: Fence, connections: Connections, me: Me) -> Parts:
    """Put the parts together; nothing runs yet."""
    deciding = connections.deciding
    leases = LeaseStream(
        connections.broker, connections.subjects, connections.streams.lease, connections.streams.events
    )
    shards = Shards(fence, leases, me, settings.ownership.shard_lease_s, _shard_hooks(telemetry, fence, connections))
    worker = Worker(WorkQueue(deciding.prefix), Custody(fence, Suspects(fence, shards)))
    intake = Intake(fence, worker, Once(connections.dead_letters.load), _border(connections), DRAIN_S)
    intake.connect(pull_loops(intake, connections, worker, telemetry, fence))
    tell = connections.notices.tell
    actor = Actor(connections.kubernetes, deciding, fence.check, partial(_count_write_back, telemetry), tell)
    reconciler = Reconciler(actor, connections.registries, deciding, worker.look_again)
    sources = Sources(EventStream(connections.broker, connections.subjects, connections.streams.events), actor.live)
    on_result = partial(_count_result, telemetry)
    hooks = Hooks(random.random, _now, on_result, tell)
    handler = Handler(reconciler, sources, FencedDeadLetters(connections.dead_letters, fence), hooks)
    traces = traced(telemetry.tracer, handler.handle)
    handle = WaitingForKubernetes(traces, connections.kubernetes_circuits, on_result).handle
    charge = Charge(fence, me.member, settings.sweep.sweep_interval_s, (actor, reconciler))
    return Parts(leases, shards, intake, worker, reconciler, handle, sweeper(connections, telemetry, charge))


def pull_loops(
    intake: Intake, connections: Connections, worker: Worker, telemetry: Telemetry, fence: Fence
) -> list[PullLoop]:
    """Return the pull loop of each shard; they feed the worker while the fence lets them."""
    burials: set[asyncio.Task[None]] = set()

    def hand_on(message: Held) -> None:
        try:
            worker.offer(receive(message, connections.cluster_id))
        except BadEventError as error:
            task = asyncio.create_task(_bury_unknown(connections, telemetry, message, str(error)))
            burials.add(task)
            task.add_done_callback(burials.discard)

    def loop(shard: int) -> PullLoop:
        ensure = partial(ensure_consumer, connections.broker.jetstream, connections.subjects, shard)
        name = connections.subjects.durable(shard)
        durable = Durable(connections.streams.events, name, ensure, left_s=partial(fence.left_s, shard))
        take = partial(intake.take, shard, hand_on=hand_on)
        return PullLoop(connections.broker, durable, take, on_death=intake.fail)

    return [loop(shard) for shard in range(connections.subjects.shards)]


async def _bury_unknown(connections: Connections, telemetry: Telemetry, message: Held, reason: str) -> None:
    """Bury what names no object of ours, so that nothing in a shard's stream is just skipped."""
    headers = message.headers | message.provenance
    try:
        message.require()
        await connections.dead_letters.bury_unknown(message.subject, headers, message.body, reason)
        await message.terminate(reason)
        logger.error("dead letter", extra={"subject": message.subject, "reason": reason})
        telemetry.metrics.events.add(1, {"result": "dead"})
    except TransientError as error:
        logger.warning("could not bury, the broker will deliver it again", extra={"reason": str(error)})


def _me(settings: OwnershipSettings, cluster_id: str) -> Me:
    instance = secrets.token_hex(8)
    return Me(settings.pod_name or f"{socket.gethostname()}_{instance[:8]}", instance, cluster_id)


def _border(connections: Connections) -> Border:
    broker, stream, subjects = connections.broker, connections.streams.events, connections.subjects
    own = connections.cluster_id
    return Border(own, partial(require_still_ours, broker, stream, subjects, own))


def _shard_hooks(telemetry: Telemetry, fence: Fence, connections: Connections) -> ShardHooks:
    metrics = telemetry.metrics

    def on_owned(owned: int, members: int) -> None:
        metrics.shards_owned.set(owned)
        connections.registries.resize(owned=owned, shards=fence.shards, members=members)

    return ShardHooks(
        on_owned=on_owned,
        on_taken=lambda clean: metrics.shard_takeovers.add(1, {"how": "clean" if clean else "unclean"}),
        on_lost=lambda reason: metrics.fences_lost.add(1, {"reason": reason}),
    )


def _task(stack: AsyncExitStack, name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)
    stack.callback(task.cancel)
    return task


def _broker_check(connections: Connections) -> str | None:
    age_s = connections.broker.round_trip_age_s()
    return None if age_s < ROUND_TRIP_AGE_S_MAX else f"the broker has not answered for {age_s:.0f} s"


async def _gauge(telemetry: Telemetry, connections: Connections, parts: Parts) -> None:
    """Show the present numbers, once a second."""
    metrics = telemetry.metrics
    while True:
        metrics.dead_letters.set(connections.dead_letters.count)
        metrics.objects.set(parts.worker.held(), {"state": "in-hand"})
        metrics.objects.set(parts.reconciler.memory.deferred(), {"state": "write-back-deferred"})
        await asyncio.sleep(1.0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _count_result(telemetry: Telemetry, work: Work, result: str) -> None:
    telemetry.metrics.events.add(1, {"result": result})
    if result == "applied" and work.seen is not None:
        age = datetime.now(UTC) - datetime.fromisoformat(work.seen.time)
        telemetry.metrics.sync_latency.record(max(0.0, age.total_seconds()))


def _count_write_back(telemetry: Telemetry, result: str) -> None:
    telemetry.metrics.writeback.add(1, {"result": result})
