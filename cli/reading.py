"""What a command needs to compare everything: cluster, broker and registries, connected as the consumer does.

Nothing is created. Whoever runs it needs the consumer's settings and, where Services are discovered, its rights.
"""

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack

import httpx
from msgspec import Struct
from opentelemetry.trace import NoOpTracer

from cli.connecting import connected
from consumer.connections import discovery_settings, plan_settings, registry_opening, survey_opening
from consumer.deadletters import DeadLetterStream
from consumer.events import EventStream
from consumer.exchange import Exchanger, Instruments
from consumer.kube import KubernetesApi
from consumer.plan import PlanSettings
from consumer.registries import Registries
from consumer.services import ServiceCatalog
from consumer.settings import ConsumerSettings
from consumer.stream import SweptStream
from consumer.survey import Surveyor
from shared.broker import Broker
from shared.cluster import client, cluster_id, load_cluster
from shared.objects import ObjectKey
from shared.startup import require_own_cluster
from shared.streams import require_shards, stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry, TelemetrySettings


class Cluster(Struct, frozen=True):
    """Cluster and registries are ready for use; a broker is not needed for this part."""

    http: httpx.AsyncClient
    kubernetes: KubernetesApi
    deciding: PlanSettings
    registries: Registries


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
    registries = Registries(opening, catalog, discovery_settings(settings), deciding)
    stack.push_async_callback(registries.close)
    return Cluster(http, kubernetes, deciding, registries)


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
    await require_shards(broker.jetstream, settings.broker)  # a look for another shard would reach the wrong owner
    await require_own_cluster(broker, names.events, subjects, identity)
    stream = SweptStream(broker, subjects, names.events, identity)
    told = EventStream(broker, subjects, names.events)
    dead_letters = DeadLetterStream(broker, subjects, names.dlq)

    async def dead() -> frozenset[ObjectKey]:
        await dead_letters.load()
        return dead_letters.entries()

    return Reading(cluster, broker, subjects, stream, told, Surveyor(stream, cluster.registries, dead, deciding))
