"""The producer's shell: wiring, start, readiness, and an orderly end.

Everything that may wait (broker, API server) waits without limit and says so; what can never work ends the process
with one sentence (SettingsError, RefusedToStartError). Cancelling `run`, or SIGTERM, ends it within a second from
every state: what is not acknowledged then is found by the next start.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from producer.kube import Clients
from producer.leader import Leadership, leadership
from producer.metrics import ProducerMetrics
from producer.outbox import PAYLOAD_BYTES_MIN
from producer.settings import ProducerSettings
from producer.term import LAST_WORDS_S, Connections, Office, Term
from shared.broker import Broker
from shared.cluster import client, cluster_id, load_cluster
from shared.errors import RefusedToStartError, SettingsError, UnreachableError
from shared.health import Health, serving
from shared.objects import Kind
from shared.running import together
from shared.startup import until_it_works
from shared.streams import ensure_streams
from shared.telemetry import Telemetry

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BROKER_SILENT_S: Final = 10.0
_CURT_S: Final = 0.05


class Producer:
    """The running parts of one process."""

    def __init__(self, settings: ProducerSettings, telemetry: Telemetry, health: Health) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._metrics = ProducerMetrics(telemetry.metrics)
        self._health = health
        self._doing = "loading the cluster configuration"  # what the start waits for; empty when it is over
        self._term: Term | None = None
        self._farewell_s = LAST_WORDS_S

    async def run(self, environ: Mapping[str, str]) -> None:
        """Connect, then publish whenever this process leads. Ends only by an error or cancellation."""
        self._health.add_check("start", lambda: f"still {self._doing}" if self._doing else None)
        ticking = asyncio.create_task(self._health.keep_ticking(self._tick), name="ticks")
        closed = asyncio.Event()
        broker = Broker(self._settings.broker, on_closed=closed.set)
        try:
            await together(ticking, self._work(broker, environ), _end_with(closed))
        finally:
            await broker.close(self._farewell_s)

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
            await self._lead(
                Connections(broker, Clients(watching, control), identity, leader, _own_name(self._settings))
            )

    async def _lead(self, links: Connections) -> None:
        leader = links.leadership
        links.broker.on_reconnect(self._on_reconnect)
        self._health.add_check("broker", lambda: _broker_trouble(links.broker))
        self._health.add_check("leadership", leader.readiness)
        self._health.add_check("publisher", lambda: self._asked(Term.refusal))
        self._health.add_check("namespaces", lambda: self._asked(Term.choice_trouble))
        for kind in dict.fromkeys(self._settings.kinds):
            self._health.add_check(f"watch {kind}", partial(self._watch_trouble, kind, leader))
        self._metrics.watch_age(lambda: self._asked(Term.age_s))
        self._metrics.leader(leads=False)
        office = Office(self._settings, self._telemetry, self._metrics, links)
        await leader.lead(lambda: self._serve(office))

    async def _serve(self, office: Office) -> None:
        """Serve one term."""
        self._term = Term(office)
        try:
            await self._term.run()
        finally:
            if not self._term.settled:
                self._farewell_s = _CURT_S  # the broker was silent, and will be
            self._term = None

    def _watch_trouble(self, kind: Kind, leader: Leadership) -> str | None:
        """Return what is wrong with the watches of a kind. A follower has none, and nothing to miss."""
        term = self._term
        if term is not None:
            return term.trouble(kind)
        return "no complete list yet" if leader.leads() else None

    def _asked(self, question: Callable[[Term], T | None]) -> T | None:
        """Return what the present term says, None without one."""
        term = self._term  # another thread asks: it may end meanwhile
        return question(term) if term is not None else None

    def _on_reconnect(self) -> None:
        if self._term is not None:
            self._term.on_reconnect()

    def _tick(self) -> None:
        self._metrics.tick()
        if self._term is not None:
            self._term.tick()


async def run(
    settings: ProducerSettings,
    telemetry: Telemetry,
    *,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Publish until cancelled.

    Raises SettingsError, RefusedToStartError, and UnreachableError when NATS refuses the connection for good.
    """
    if settings.selection.namespaces and settings.selection.namespace_selector:
        raise SettingsError("NAMESPACES and NAMESPACE_SELECTOR are both set: choose one of the two")
    health = Health(stuck_after_s=settings.health.health_stuck_after_s)
    with serving(settings.health, health, telemetry.scrape) as port:
        logger.info("producer starts", extra={"health_port": port, "cluster": settings.naming.cluster_name})
        await Producer(settings, telemetry, health).run(environ)


def _own_name(settings: ProducerSettings) -> str:
    """Return a name for people that no other process has."""
    return settings.lease.pod_name or f"{socket.gethostname()}-{os.getpid()}"


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
