"""What a command needs to compare everything: cluster, broker and registries, connected as the consumer does.

Nothing is created. Whoever runs it needs the consumer's settings and, where Services are discovered, its rights.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import httpx
from msgspec import Struct
from opentelemetry.trace import NoOpTracer

from cli.connecting import connected, require_stream
from consumer.connections import discovery_settings, plan_settings, registry_opening, survey_opening
from consumer.delivery.deadletters import DeadLetterStream
from consumer.delivery.events import EventStream
from consumer.discovery import Located, known_registries
from consumer.kube import KubernetesApi
from consumer.plan import PlanSettings
from consumer.registries import Registries
from consumer.requests.exchange import Exchanger, Instruments
from consumer.services import ServiceCatalog
from consumer.settings import ConsumerSettings
from consumer.sweep.stream import SweptStream
from consumer.sweep.survey import Surveyor
from shared.broker import Broker
from shared.cluster import client, cluster_id, load_cluster
from shared.objects import ObjectKey
from shared.startup import require_own_cluster
from shared.streams import stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry, TelemetrySettings


async def _nowhere() -> tuple[Located, ...]:
    return ()


class Cluster(Struct, frozen=True):
    """Cluster and registries are ready for use; a broker is not needed for this part.

    `places` are the registries that are known without an object, with their addresses.
    """

    http: httpx.AsyncClient
    kubernetes: KubernetesApi
    deciding: PlanSettings
    registries: Registries
    places: Callable[[], Awaitable[tuple[Located, ...]]] = _nowhere

    async def trouble(self, registry: str, reason: str) -> str:
        """Return why a registry was not read, with its address where neither its name nor the reason tells it."""
        address = {each.name: each.address for each in await self.places()}.get(registry, registry)
        return reason if address == registry or address in reason else f"{address}: {reason}"


class Reading(Struct, frozen=True):
    """Everything is ready for use."""

    cluster: Cluster
    broker: Broker
    subjects: Subjects
    stream: SweptStream
    events: EventStream
    surveyor: Surveyor

    @property
    def deciding(self) -> PlanSettings:
        return self.cluster.deciding


async def cluster_reading(
    settings: ConsumerSettings, environ: Mapping[str, str], role: str, stack: AsyncExitStack
) -> Cluster:
    """Connect to cluster and registries; `role` is told to both, `stack` closes. Raises as `reading`."""
    http = client(load_cluster(settings.cluster, environ), use="control", role=role)
    stack.push_async_callback(http.aclose)
    exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
    identity = await cluster_id(http, settings.cluster)
    kubernetes = KubernetesApi(exchanger, lambda: math.inf, settings.naming.api_version)
    lists = await kubernetes.kserve_lists(settings.write_back.kserve_namespace)
    deciding = plan_settings(settings, identity, lists)
    opening = survey_opening(registry_opening(settings, Telemetry(TelemetrySettings(), role=role), lambda: math.inf))
    catalog = ServiceCatalog(exchanger, settings.registry.registry_namespaces)
    discovery = discovery_settings(settings)
    registries = Registries(opening, catalog, discovery, deciding)
    stack.push_async_callback(registries.close)

    async def places() -> tuple[Located, ...]:
        return known_registries(await catalog.services(), discovery)

    return Cluster(http, kubernetes, deciding, registries, places)


async def reading(
    settings: ConsumerSettings, environ: Mapping[str, str], stack: AsyncExitStack, role: str = "drift"
) -> Reading:
    """Connect; `stack` closes.

    Raises SettingsError, RefusedToStartError for a broker that holds another cluster under our name, and
    UnreachableError and PermanentError for what does not answer or does not let us in.
    """
    cluster = await cluster_reading(settings, environ, role, stack)
    deciding = cluster.deciding
    identity = deciding.us.cluster_id
    broker = await connected(settings.broker, stack)
    subjects = Subjects(settings.broker.subject_prefix, settings.naming.cluster_name, settings.broker.shards)
    names = stream_names(settings.broker.subject_prefix)
    await require_stream(broker, settings.broker)  # a look for another shard would reach the wrong owner
    await require_own_cluster(broker, names.events, subjects, identity)
    stream = SweptStream(broker, subjects, names.events, identity)
    told = EventStream(broker, subjects, names.events)
    dead_letters = DeadLetterStream(broker, subjects, names.dlq)

    async def dead() -> frozenset[ObjectKey]:
        await dead_letters.load()
        return dead_letters.entries()

    return Reading(cluster, broker, subjects, stream, told, Surveyor(stream, cluster.registries, dead, deciding))
