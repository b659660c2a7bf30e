"""What a command needs to compare everything: cluster, broker and registries, connected as the consumer does.

Nothing is created. Whoever runs it needs the consumer's settings and, where Services are discovered, its rights.
"""

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack

from msgspec import Struct
from opentelemetry.trace import NoOpTracer

from cli.connecting import connected
from consumer.connections import discovery_settings, plan_settings, registry_opening, survey_opening
from consumer.deadletters import DeadLetterStream
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


class Reading(Struct, frozen=True):
    """Everything is ready for use."""

    broker: Broker
    deciding: PlanSettings
    stream: SweptStream
    surveyor: Surveyor


async def reading(settings: ConsumerSettings, environ: Mapping[str, str], stack: AsyncExitStack) -> Reading:
    """Connect; `stack` closes.

    Raises SettingsError, RefusedToStartError for a broker that holds another cluster under our name, and
    UnreachableError and PermanentError for what does not answer or does not let us in.
    """
    http = client(load_cluster(settings.cluster, environ), use="control", role="drift")
    stack.push_async_callback(http.aclose)
    exchanger = Exchanger(http, Instruments(NoOpTracer(), lambda *_: None))
    identity = await cluster_id(http, settings.cluster)
    kubernetes = KubernetesApi(exchanger, lambda: math.inf, settings.naming.api_version)
    lists = await kubernetes.kserve_lists(settings.write_back.kserve_namespace)
    deciding = plan_settings(settings, identity, lists)
    broker = await connected(settings.broker, stack)
    subjects = Subjects(settings.broker.subject_prefix, settings.naming.cluster_name, settings.broker.shards)
    names = stream_names(settings.broker.subject_prefix)
    await require_shards(broker.jetstream, settings.broker)  # a look for another shard would reach the wrong owner
    await require_own_cluster(broker, names.events, subjects, identity)
    opening = survey_opening(registry_opening(settings, Telemetry(TelemetrySettings(), role="drift"), lambda: math.inf))
    catalog = ServiceCatalog(exchanger, settings.registry.registry_namespaces)
    registries = Registries(opening, catalog, discovery_settings(settings), deciding)
    stack.push_async_callback(registries.close)
    stream = SweptStream(broker, subjects, names.events, identity)
    dead_letters = DeadLetterStream(broker, subjects, names.dlq)

    async def dead() -> frozenset[ObjectKey]:
        await dead_letters.load()
        return dead_letters.entries()

    return Reading(broker, deciding, stream, Surveyor(stream, registries, dead, deciding))
