"""The producer's shell: wiring, start, readiness, the stream's keeper, and an orderly end.

Everything that may wait (broker, API server) waits without limit and says so; what can never work ends the process
with one sentence (SettingsError, RefusedToStartError). Cancelling `run`, or SIGTERM, ends it within a second from
every state: what is not acknowledged then is found by the next start.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

import httpx
from msgspec import Struct

from producer.inventory import Epoch
from producer.items import Reader
from producer.kube import WatchApi
from producer.leader import Leadership, leadership
from producer.ledger import Holdings, Ledger
from producer.metrics import ProducerMetrics
from producer.outbox import PAYLOAD_BYTES_MIN, Outbox, Source
from producer.publisher import Publisher
from producer.reflector import Reflector, World
from producer.settings import ProducerSettings
from shared.broker import Broker
from shared.cluster import client, cluster_id, load_cluster
from shared.errors import PermanentError, RefusedToStartError, TransientError, UnreachableError
from shared.health import Health, serving
from shared.objects import Kind
from shared.running import together
from shared.startup import until_it_works
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry

logger = logging.getLogger(__name__)

_KEEPER_INTERVAL_S: Final = 30.0
_BROKER_SILENT_S: Final = 10.0
_LAST_WORDS_S: Final = 0.3  # to get acknowledgements of what is under way, and again to end the connection
_CLOSE_S: Final = 0.1


class Inventories:
    """Reads the inventories of all kinds, because the epoch is that of the cluster: the highest in any of them."""

    def __init__(self, ledger: Ledger, cluster: str, kinds: tuple[Kind, ...], epoch: Epoch) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._missing = set(kinds)
        self._all_read = asyncio.Event()
        self._epoch = epoch

    async def load(self, kind: Kind) -> Holdings:
        """Read one; the first time, wait for the others."""
        holdings = await self._ledger.holdings(kind, self._cluster)
        self._epoch.known(holdings.epoch)
        self._missing.discard(kind)
        if not self._missing:
            self._all_read.set()
        await self._all_read.wait()
        if not self._epoch.value:
            self._epoch.begin(int(time.time()))
        return holdings


class Connections(Struct, frozen=True):
    """What the process is connected to."""

    broker: Broker
    watching: httpx.AsyncClient
    control: httpx.AsyncClient
    cluster_id: str
    leadership: Leadership


class Producer:
    """The running parts of one process."""

    def __init__(self, settings: ProducerSettings, telemetry: Telemetry, health: Health) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._metrics = ProducerMetrics(telemetry.metrics)
        self._health = health
        self._doing = "loading the cluster configuration"  # what the start waits for; empty when it is over
        # What there is only while this process leads:
        self._reflectors: dict[Kind, Reflector] = {}
        self._publisher: Publisher | None = None
        self._created = ""
        self._reconnected = asyncio.Event()

    async def run(self, environ: Mapping[str, str]) -> None:
        """Connect, then publish whenever this process leads. Ends only by an error or cancellation."""
        self._health.add_check("start", lambda: f"still {self._doing}" if self._doing else None)
        ticking = asyncio.create_task(self._health.keep_ticking(self._tick), name="ticks")
        closed = asyncio.Event()
        broker = Broker(self._settings.broker, on_closed=closed.set)
        try:
            await together(ticking, self._work(broker, environ), _end_with(closed))
        finally:
            await broker.close(_LAST_WORDS_S)

    async def _work(self, broker: Broker, environ: Mapping[str, str]) -> None:
        broker.on_event(self._metrics.broker_event)
        cluster = await asyncio.to_thread(load_cluster, self._settings.cluster, environ)
        async with (
            client(cluster, use="watch", role="producer") as watching,
            client(cluster, use="control", role="producer") as control,
            client(cluster, use="control", role="producer") as electing,
        ):
            leader = leadership(self._settings, electing, environ)
            self._doing = "connecting to NATS"
            await broker.connect()
            self._doing = "asking Kubernetes who the cluster is"
            identity = await until_it_works("the cluster", lambda: cluster_id(control, self._settings.cluster))
            self._doing = "setting up the streams"
            await until_it_works("the streams", lambda: ensure_streams(broker.jetstream, self._settings.broker))
            _require_room(broker.max_payload_bytes)
            self._doing = ""
            await self._lead(Connections(broker, watching, control, identity, leader))

    async def _lead(self, links: Connections) -> None:
        leader = links.leadership
        links.broker.on_reconnect(self._on_reconnect)
        self._health.add_check("broker", lambda: _broker_trouble(links.broker))
        self._health.add_check("leadership", leader.readiness)
        self._health.add_check("publisher", self._refusal)
        for kind in self._kinds:
            self._health.add_check(f"watch {kind}", partial(self._watch_trouble, kind, leader))
        self._metrics.watch_age(self._age_s)
        self._metrics.leader(leads=False)
        # Nothing known survives a change of the leader: whoever leads begins with the inventory and a list.
        await leader.lead(lambda: self._publish(links))

    def _watch_trouble(self, kind: Kind, leader: Leadership) -> str | None:
        """Return what is wrong with a watch. A follower has none, and nothing to miss."""
        reflector = self._reflectors.get(kind)
        if reflector is not None:
            return reflector.readiness()
        return "no complete list yet" if leader.leads() else None

    def _refusal(self) -> str | None:
        publisher = self._publisher
        return publisher.refusal or None if publisher is not None else None

    async def _publish(self, links: Connections) -> None:
        publisher = Publisher(links.broker.client, self._metrics, permitted=links.leadership.leads)
        await publisher.start()
        self._publisher = publisher
        self._metrics.leader(leads=True)
        try:
            ledger, world = self._world(links, publisher)
            self._created = await until_it_works("the event stream", lambda: self._ensured(links.broker, ledger))
            self._reflectors = {kind: self._reflector(kind, links, world) for kind in self._kinds}
            # None of these may end: a process without one of them would look alive and lose events.
            running = (reflector.run() for reflector in self._reflectors.values())
            await together(publisher.task, self._keep_stream(links.broker, ledger), *running)
        finally:
            await _hastily(publisher.barrier(), _LAST_WORDS_S)
            await _hastily(publisher.close(), _CLOSE_S)
            self._forget()

    def _forget(self) -> None:
        """Be a follower: the next leader counts the objects."""
        for kind in self._reflectors:
            for state in ("living", "deleted"):
                self._metrics.objects(kind, state, 0)
        self._reflectors = {}
        self._publisher = None
        self._metrics.leader(leads=False)

    @property
    def _kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(self._settings.kinds))

    def _world(self, links: Connections, publisher: Publisher) -> tuple[Ledger, World]:
        settings, broker, epoch = self._settings, links.broker, Epoch()
        subjects = Subjects(settings.broker.subject_prefix, settings.naming.cluster_name, settings.broker.shards)
        stream = stream_names(settings.broker.subject_prefix).events
        ledger = Ledger(broker.client, broker.jetstream, stream, subjects)
        source = Source(links.cluster_id, subjects, lambda: broker.max_payload_bytes)
        outbox = Outbox(source, publisher, ledger, self._telemetry.tracer)
        inventories = Inventories(ledger, links.cluster_id, self._kinds, epoch)
        return ledger, World(outbox, inventories.load, epoch, self._metrics)

    def _reflector(self, kind: Kind, links: Connections, world: World) -> Reflector:
        reader = Reader(kind, self._settings.naming.prefixes)
        return Reflector(kind, WatchApi(reader, watching=links.watching, control=links.control), world)

    async def _keep_stream(self, broker: Broker, ledger: Ledger) -> None:
        """Notice, after a reconnect and every half minute, that the stream was made anew: then publish everything."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KEEPER_INTERVAL_S):
                    await self._reconnected.wait()
            self._reconnected.clear()
            try:
                created = await self._ensured(broker, ledger)
            except (TransientError, PermanentError) as error:
                logger.warning("the stream cannot be checked", extra={"error": str(error)})
                continue
            if created != self._created:
                logger.error("the event stream was created anew; publishing all objects", extra={"since": created})
                self._created = created
                for reflector in self._reflectors.values():
                    reflector.resync("the event stream was created anew")

    async def _ensured(self, broker: Broker, ledger: Ledger) -> str:
        """Return when the event stream was created, which may be now."""
        await ensure_streams(broker.jetstream, self._settings.broker)
        return await ledger.created()

    def _on_reconnect(self) -> None:
        if self._publisher is not None:
            self._publisher.kick()
        self._reconnected.set()

    def _tick(self) -> None:
        self._metrics.tick()
        for reflector in self._reflectors.values():
            living = reflector.inventory.living()
            self._metrics.objects(reflector.kind, "living", living)
            self._metrics.objects(reflector.kind, "deleted", len(reflector.inventory) - living)

    def _age_s(self) -> float | None:
        ages = [age for reflector in list(self._reflectors.values()) if (age := reflector.age_s()) is not None]
        return max(ages, default=None)


async def run(
    settings: ProducerSettings,
    telemetry: Telemetry,
    *,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Publish until cancelled.

    Raises SettingsError, RefusedToStartError, and UnreachableError when NATS refuses the connection for good.
    """
    health = Health(stuck_after_s=settings.health.health_stuck_after_s)
    with serving(settings.health, health, telemetry.scrape) as port:
        logger.info("producer starts", extra={"health_port": port, "cluster": settings.naming.cluster_name})
        await Producer(settings, telemetry, health).run(environ)


async def _hastily(work: Awaitable[None], within_s: float) -> None:
    """Do something at the end, if it can be done at once."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await work


async def _end_with(closed: asyncio.Event) -> None:
    await closed.wait()
    raise UnreachableError("NATS has closed the connection for good: are the credentials still valid?")


def _require_room(max_payload_bytes: int) -> None:
    if max_payload_bytes < PAYLOAD_BYTES_MIN:
        raise RefusedToStartError(
            f"The NATS server takes messages of {max_payload_bytes} bytes, and isvc-sync needs {PAYLOAD_BYTES_MIN} "
            "(max_payload in the server's configuration; its default is 1 MiB): raise it."
        )


def _broker_trouble(broker: Broker) -> str | None:
    age_s = broker.round_trip_age_s()
    return f"NATS has not answered for {age_s:.0f} s" if age_s > _BROKER_SILENT_S else None
