"""What the consumer talks to, connected and checked: cluster, broker, registry. Opened by `app.py` at start."""

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from consumer.deadletters import DeadLetterStream
from consumer.exchange import Exchanger, Instruments
from consumer.kube import KubernetesApi
from consumer.registry_client import InFlightLimit, RegistryAccess, RegistryClient
from consumer.settings import ConsumerSettings
from consumer.shards import SoleOwner
from consumer.writeback import KServeLists
from shared.broker import Broker
from shared.cluster import client, cluster_id, load_cluster
from shared.errors import SettingsError, UnreachableError
from shared.startup import require_own_cluster, until_it_works
from shared.streams import StreamNames, ensure_consumer, ensure_streams, stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry


class Connections(msgspec.Struct, frozen=True):
    """Everything is ready for use. `lost` ends with an error when the broker connection is closed for good."""

    kubernetes: KubernetesApi
    cluster_id: str
    lists: KServeLists
    broker: Broker
    subjects: Subjects
    streams: StreamNames
    dead_letters: DeadLetterStream
    registry: RegistryClient
    lost: asyncio.Future[None]


async def connect(
    settings: ConsumerSettings, telemetry: Telemetry, owner: SoleOwner, stack: AsyncExitStack
) -> Connections:
    """Connect, and wait for whatever is not there yet; `stack` closes.

    Raises SettingsError for what cannot be used, RefusedToStartError for a world that does not fit the settings.
    """
    naming = settings.naming
    registry = RegistryClient(
        _access(settings), InFlightLimit(settings.registry.registry_in_flight), _counted(telemetry)
    )
    stack.push_async_callback(registry.close)
    http = client(load_cluster(settings.cluster, os.environ), use="control", role="consumer")
    stack.push_async_callback(http.aclose)
    kubernetes = KubernetesApi(Exchanger(http, Instruments(telemetry.tracer, lambda *_: None)), owner.budget_s)
    identity = await until_it_works("the cluster", partial(cluster_id, http, settings.cluster))

    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker = Broker(settings.broker, on_closed=lambda: lost.set_exception(UnreachableError("NATS refused us for good")))
    broker.on_event(lambda event: telemetry.metrics.broker_events.add(1, {"event": event}))
    await broker.connect()
    stack.push_async_callback(broker.close)
    subjects = Subjects(settings.broker.subject_prefix, naming.cluster_name, settings.broker.shards)
    streams = stream_names(settings.broker.subject_prefix)
    await until_it_works("the streams", partial(ensure_streams, broker.jetstream, settings.broker))
    own = partial(require_own_cluster, broker, streams.events, subjects, identity)
    await until_it_works("the cluster's name", own)
    for shard in owner.owned:
        await until_it_works("the durables", partial(ensure_consumer, broker.jetstream, subjects, shard))
    dead_letters = DeadLetterStream(broker, subjects, streams.dlq)
    await until_it_works("the dead letters", dead_letters.load)
    return Connections(
        kubernetes=kubernetes,
        cluster_id=identity,
        lists=await kubernetes.kserve_lists(settings.write_back.kserve_namespace),
        broker=broker,
        subjects=subjects,
        streams=streams,
        dead_letters=dead_letters,
        registry=registry,
        lost=lost,
    )


def _access(settings: ConsumerSettings) -> RegistryAccess:
    given = settings.registry
    try:
        return RegistryAccess(
            base_url=given.registry_url,
            token_file=Path(given.registry_token_file) if given.registry_token_file else None,
            ca_file=Path(given.registry_ca_file) if given.registry_ca_file else None,
            api_version=given.registry_api_version,
        )
    except ValueError as error:
        raise SettingsError(f"REGISTRY_URL: {error}") from error


def _counted(telemetry: Telemetry) -> Instruments:
    def count(method: str, code: str, _seconds: float) -> None:
        telemetry.metrics.registry_requests.add(1, {"method": method, "code": code})

    return Instruments(telemetry.tracer, count)
