"""What the consumer talks to, connected and checked: cluster, broker, registry. Opened by `app.py` at start."""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from consumer.addresses import normal
from consumer.delivery.deadletters import DeadLetterStream
from consumer.discovery import DiscoverySettings
from consumer.kube import KubernetesApi
from consumer.kube_events import EventsApi, KubernetesEvents
from consumer.ownership.fence import Fence
from consumer.plan import PlanSettings
from consumer.records import Identity
from consumer.registries import Opening, Registries
from consumer.requests.circuit import CIRCUIT_STATES
from consumer.requests.exchange import Budget, Exchanger, Instruments
from consumer.requests.kube_circuit import KubernetesCircuits
from consumer.requests.registry_client import RegistryAccess, certificates
from consumer.services import ServiceCatalog
from consumer.settings import ConsumerSettings, parse_rules
from consumer.writeback import KServeLists, Target, WriteBack, WriteBackForm
from shared.broker import Broker, BrokerSettings
from shared.cluster import client, cluster_id, load_cluster
from shared.errors import SettingsError, UnreachableError
from shared.startup import require_own_cluster, until_it_works
from shared.streams import StreamNames, ensure_consumer, ensure_streams, stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry


class Connections(msgspec.Struct, frozen=True):
    """Everything is ready for use. `lost` ends with an error when the broker connection is closed for good.

    `surveyed` are the registries as the sweep reads them. `kserve_lists` reads anew which keys KServe keeps from pods.
    """

    kubernetes: KubernetesApi
    kubernetes_circuits: KubernetesCircuits
    notices: KubernetesEvents
    cluster_id: str
    broker: Broker
    subjects: Subjects
    streams: StreamNames
    dead_letters: DeadLetterStream
    deciding: PlanSettings
    registries: Registries
    surveyed: Registries
    kserve_lists: Callable[[], Awaitable[KServeLists]]
    lost: asyncio.Future[None]


async def connect(settings: ConsumerSettings, telemetry: Telemetry, owner: Fence, stack: AsyncExitStack) -> Connections:
    """Connect, and wait for whatever is not there yet; `stack` closes.

    Raises SettingsError for what cannot be used, RefusedToStartError for a world that does not fit the settings.
    """
    naming = settings.naming
    http = client(load_cluster(settings.cluster, os.environ), use="control", role="consumer")
    stack.push_async_callback(http.aclose)
    exchanger = Exchanger(http, Instruments(telemetry.tracer, lambda *_: None))
    circuits = KubernetesCircuits(exchanger)
    kubernetes = KubernetesApi(circuits, owner.budget_s, naming.api_version)
    opening = registry_opening(settings, telemetry, owner.budget_s)
    identity = await until_it_works("the cluster", partial(cluster_id, http, settings.cluster))

    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker = Broker(settings.broker, on_closed=lambda: lost.set_exception(UnreachableError("NATS refused us for good")))
    broker.on_event(lambda event: telemetry.metrics.broker_events.add(1, {"event": event}))
    await broker.connect()
    stack.push_async_callback(broker.close)
    subjects = Subjects(settings.broker.subject_prefix, naming.cluster_name, settings.broker.shards)
    streams = stream_names(settings.broker.subject_prefix)
    await _prepare(broker, settings.broker, subjects, identity)
    config = KubernetesApi(exchanger, owner.budget_s, naming.api_version)  # read now and then, and for no object
    lists = partial(config.kserve_lists, settings.write_back.kserve_namespace)
    deciding = plan_settings(settings, identity, await lists())
    registries, surveyed = _registries(settings, deciding, exchanger, opening, stack)
    dead_letters = DeadLetterStream(broker, subjects, streams.dlq)
    await until_it_works("the dead letters", dead_letters.load)
    return Connections(
        kubernetes=kubernetes,
        kubernetes_circuits=circuits,
        notices=KubernetesEvents(EventsApi(exchanger, naming.api_version), time.time, _notices_counted(telemetry)),
        cluster_id=identity,
        broker=broker,
        subjects=subjects,
        streams=streams,
        dead_letters=dead_letters,
        deciding=deciding,
        registries=registries,
        surveyed=surveyed,
        kserve_lists=lists,
        lost=lost,
    )


def _registries(
    settings: ConsumerSettings, deciding: PlanSettings, exchanger: Exchanger, opening: Opening, stack: AsyncExitStack
) -> tuple[Registries, Registries]:
    """Return the registries as objects' owners use them, and as the sweep reads them."""
    catalog = ServiceCatalog(exchanger, settings.registry.registry_namespaces)
    stack.push_async_callback(catalog.close)
    registries, surveyed = (
        Registries(each, catalog, discovery_settings(settings), deciding) for each in (opening, survey_opening(opening))
    )
    stack.push_async_callback(registries.close)
    stack.push_async_callback(surveyed.close)
    return registries, surveyed


async def _prepare(broker: Broker, settings: BrokerSettings, subjects: Subjects, identity: str) -> None:
    """Have streams and durables, and nobody else's events under our name."""
    await until_it_works("the streams", partial(ensure_streams, broker.jetstream, settings))
    own = partial(require_own_cluster, broker, stream_names(subjects.prefix).events, subjects, identity)
    await until_it_works("the cluster's name", own)
    for shard in range(settings.shards):
        await until_it_works("the durables", partial(ensure_consumer, broker.jetstream, subjects, shard))


def plan_settings(settings: ConsumerSettings, identity: str, lists: KServeLists) -> PlanSettings:
    """Return what decides, of the settings and of the cluster."""
    naming, writing = settings.naming, settings.write_back
    key = f"{naming.label_prefix}inference-service-id"
    return PlanSettings(
        us=Identity(naming.cluster_name, identity),
        prefix=naming.label_prefix,
        environment=settings.registry.environment_name,
        write_back=WriteBack(writing.write_back),
        target=Target(key, WriteBackForm(writing.write_back_form), lists),
    )


def discovery_settings(settings: ConsumerSettings) -> DiscoverySettings:
    given = settings.registry
    return DiscoverySettings(
        prefix=settings.naming.label_prefix,
        url=None if given.registry_url is None else normal(given.registry_url),
        namespaces=given.registry_namespaces,
        allowed_hosts=given.registry_allowed_hosts,
        rules=parse_rules(given.registry_rules),
        cluster_domain=given.cluster_domain,
    )


def registry_opening(settings: ConsumerSettings, telemetry: Telemetry, budget: Budget) -> Opening:
    """Return how registries are opened. Raises SettingsError for what would fail for each of them."""
    given = settings.registry
    ca_file = Path(given.registry_ca_file) if given.registry_ca_file else None

    def access(address: str) -> RegistryAccess:
        return RegistryAccess(
            base_url=address,
            token_file=Path(given.registry_token_file) if given.registry_token_file else None,
            ca_file=ca_file,
            api_version=given.registry_api_version,
        )

    certificates(ca_file)
    if given.registry_url is not None:
        try:
            access(given.registry_url)
        except ValueError as error:
            raise SettingsError(f"REGISTRY_URL: {error}") from error
    return Opening(
        access=access,
        in_flight=given.registry_in_flight,
        instruments=_counted(telemetry),
        on_circuit=partial(_show_circuit, telemetry),
        budget=budget,
        now=time.monotonic,
    )


def survey_opening(opening: Opening) -> Opening:
    """Return how a survey opens registries: one request at a time, bound to no shard, and with a circuit of its own."""
    return replace(opening, in_flight=1, budget=lambda: math.inf, on_circuit=lambda *_: None)


def _counted(telemetry: Telemetry) -> Instruments:
    def count(method: str, code: str, _seconds: float) -> None:
        telemetry.metrics.registry_requests.add(1, {"method": method, "code": code})

    return Instruments(telemetry.tracer, count)


def _notices_counted(telemetry: Telemetry) -> Callable[[str], None]:
    return lambda result: telemetry.metrics.notices.add(1, {"result": result})


def _show_circuit(telemetry: Telemetry, registry: str, state: str) -> None:
    for each in CIRCUIT_STATES:
        telemetry.metrics.registry_circuit.set(int(each == state), {"registry": registry, "state": each})
