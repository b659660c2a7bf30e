"""The consumer process: puts the parts together, runs them, and takes them down in order.

One pull loop for each shard feeds the one worker. At the end: no more pulls, what is at hand is finished, the rest
stays un-acknowledged for the next owner.
"""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from consumer.act import Actor
from consumer.connections import Connections, connect
from consumer.delivery import Delivery
from consumer.events import EventStream
from consumer.handle import Handler, Hooks, Sources
from consumer.inbox import Durable, PullLoop
from consumer.lookup import Lookup
from consumer.plan import PlanSettings
from consumer.reconcile import Reconciler
from consumer.records import Identity
from consumer.registry import ModelRegistry
from consumer.settings import ConsumerSettings
from consumer.shards import SoleOwner
from consumer.spans import Handle, traced
from consumer.work import Work, receive
from consumer.worker import Worker
from consumer.workqueue import WorkQueue
from consumer.writeback import Target, WriteBack, WriteBackForm
from shared.errors import BadEventError, TransientError
from shared.health import Health, serving
from shared.running import together
from shared.streams import ensure_consumer
from shared.telemetry import Telemetry

logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 10.0  # a third of the durables' ack_wait
DRAIN_S: Final = 6.0  # one request may take 5 s
ROUND_TRIP_AGE_S_MAX: Final = 10.0


class Parts(msgspec.Struct, frozen=True):
    """What runs."""

    worker: Worker
    reconciler: Reconciler
    handle: Handle


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
        owner = SoleOwner(settings.broker.shards)
        connections = await connect(settings, telemetry, owner, stack)
        health.add_check("broker", partial(_broker_check, connections))
        parts = assemble(settings, telemetry, owner, connections)
        stack.push_async_callback(parts.worker.drain, DRAIN_S)
        handling = _task(stack, "worker", parts.worker.run(parts.handle))
        keeping = _task(stack, "keep alive", parts.worker.keep_alive(KEEP_ALIVE_S))
        gauging = _task(stack, "gauges", _gauge(telemetry, connections, parts))
        for pull in pull_loops(owner, connections, parts.worker, telemetry):
            pull.start()
            stack.push_async_callback(pull.stop)
        for task in (ticking, handling, keeping, gauging):
            health.watch_task(task)
        ready.set()
        logger.info("consuming", extra={"cluster": settings.naming.cluster_name, "shards": len(owner.owned)})
        await together(connections.lost, ticking, handling, keeping, gauging)


def assemble(settings: ConsumerSettings, telemetry: Telemetry, owner: SoleOwner, connections: Connections) -> Parts:
    """Put the reconciler, the handler and the worker together; nothing runs yet."""
    deciding = _plan_settings(settings, connections)
    registry = ModelRegistry(connections.registry, owner.budget_s)
    actor = Actor(registry, connections.kubernetes, deciding, owner.fence, partial(_count_write_back, telemetry))
    lookup = Lookup(registry, actor.environments, deciding, time.monotonic)
    worker = Worker(WorkQueue(deciding.prefix))
    reconciler = Reconciler(actor, lookup, deciding, worker.look_again)
    sources = Sources(EventStream(connections.broker, connections.subjects, connections.streams.events), actor.live)
    hooks = Hooks(random.random, _now, partial(_count_result, telemetry))
    handler = Handler(reconciler, sources, connections.dead_letters, hooks)
    return Parts(worker, reconciler, traced(telemetry.tracer, handler.handle))


def pull_loops(owner: SoleOwner, connections: Connections, worker: Worker, telemetry: Telemetry) -> list[PullLoop]:
    """Return a pull loop for each owned shard; they feed the worker."""
    burials: set[asyncio.Task[None]] = set()

    def take(delivery: Delivery) -> None:
        try:
            worker.offer(receive(delivery, connections.cluster_id))
        except BadEventError as error:
            task = asyncio.create_task(_bury_unknown(connections, telemetry, delivery, str(error)))
            burials.add(task)
            task.add_done_callback(burials.discard)

    def loop(shard: int) -> PullLoop:
        ensure = partial(ensure_consumer, connections.broker.jetstream, connections.subjects, shard)
        durable = Durable(connections.streams.events, connections.subjects.durable(shard), ensure)
        return PullLoop(connections.broker, durable, take)

    return [loop(shard) for shard in sorted(owner.owned)]


async def _bury_unknown(connections: Connections, telemetry: Telemetry, delivery: Delivery, reason: str) -> None:
    """Bury what names no object of ours, so that nothing in a shard's stream is just skipped."""
    headers = delivery.headers | delivery.provenance
    try:
        await connections.dead_letters.bury_unknown(delivery.subject, headers, delivery.body, reason)
        await delivery.terminate(reason)
        logger.error("dead letter", extra={"subject": delivery.subject, "reason": reason})
        telemetry.metrics.events.add(1, {"result": "dead"})
    except TransientError as error:
        logger.warning("could not bury, the broker will deliver it again", extra={"reason": str(error)})


def _plan_settings(settings: ConsumerSettings, connections: Connections) -> PlanSettings:
    naming, writing = settings.naming, settings.write_back
    key = f"{naming.label_prefix}inference-service-id"
    return PlanSettings(
        us=Identity(naming.cluster_name, connections.cluster_id),
        prefix=naming.label_prefix,
        environment=settings.registry.environment_name,
        write_back=WriteBack(writing.write_back),
        target=Target(key, WriteBackForm(writing.write_back_form), connections.lists),
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
