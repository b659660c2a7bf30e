"""The facts beside recorded events: by what the consumer decides, and what the registries hold."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.trace import NoOpTracer

from cli.capture.recording import Recording, Session
from cli.reading import Cluster, cluster_reading
from consumer.connections import discovery_settings
from consumer.records import Record
from consumer.requests.exchange import Exchanger, Instruments
from consumer.services import ServiceCatalog
from consumer.settings import ConsumerSettings, WriteBackSettings
from consumer.writeback import WriteBack, WriteBackForm
from replay.capture import Captured, Deciding
from replay.recording.publishing import Named
from replay.recording.registry import RegistryFacts
from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.errors import BadEventError
from shared.naming import NamingSettings
from shared.settings import load


class BareSettings(Struct, frozen=True, kw_only=True):
    """What of the consumer's settings is read where no registry is asked."""

    naming: NamingSettings
    broker: BrokerSettings
    cluster: ClusterSettings
    write_back: WriteBackSettings
    environment_name: str = "{namespace}"


class RecordSettings(Struct, frozen=True):
    """The settings; `consumer` are all of them, where a registry is asked."""

    bare: BareSettings
    consumer: ConsumerSettings | None = None


class Facting:
    """Writes each event after the facts that it needs: a registry's, or what its own labels name."""

    def __init__(self, session: Session, recording: Recording, cluster: Cluster | None) -> None:
        self._session = session
        self._recording = recording
        self._cluster = cluster
        self._named = Named()
        self._facts: RegistryFacts | None = None

    def ask(self, is_initial: Callable[[Record], bool], namespaces: set[str]) -> None:
        """Ask the registries; `is_initial` says which records were there before the recording."""
        assert self._cluster is not None, "no registry is to be asked"
        cluster = self._cluster
        self._facts = RegistryFacts(cluster.registries, cluster.deciding, is_initial, namespaces)

    async def write(self, line: Captured) -> None:
        if not self._recording.recorder.takes(line):
            return
        if self._facts is not None:
            for facts in await self._facts.before(line):
                self._recording.write(facts)
        else:
            self._name(line)
        self._recording.write(line)

    async def end(self) -> None:
        """Write what the registries hold in the end."""
        if self._facts is not None:
            async for facts in self._facts.at_end(self._recording.recorder.firsts):
                self._recording.write(facts)
            self._session.troubles += self._facts.troubles

    def _name(self, line: Captured) -> None:
        try:
            named = self._named.new(line)
        except BadEventError:
            return  # it is left out
        if named is not None:
            self._recording.write(named)


def settings_of(session: Session, environ: Mapping[str, str]) -> RecordSettings:
    """Return the settings; those of registries are read where they are to be asked. Raises SettingsError."""
    if not session.options.registry:
        return RecordSettings(load(BareSettings, environ))
    found = load(ConsumerSettings, environ)
    bare = BareSettings(
        naming=found.naming,
        broker=found.broker,
        cluster=found.cluster,
        write_back=found.write_back,
        environment_name=found.registry.environment_name,
    )
    return RecordSettings(bare, found)


async def facts_from(settings: RecordSettings, environ: Mapping[str, str], stack: AsyncExitStack) -> Cluster | None:
    """Connect to cluster and registries; None where no registry is asked. Raises as `cluster_reading`."""
    if settings.consumer is None:
        return None
    return await cluster_reading(settings.consumer, environ, "record", stack)


async def deciding(settings: RecordSettings, cluster: Cluster | None) -> Deciding:
    """Return by what the consumer decides, for the header; without `cluster`, as far as the settings say it."""
    writing, consumer = settings.bare.write_back, settings.consumer
    known = Deciding(
        prefix=settings.bare.naming.label_prefix,
        environment=settings.bare.environment_name,
        write_back=WriteBack(writing.write_back),
        write_back_form=WriteBackForm(writing.write_back_form),
    )
    if cluster is None or consumer is None:
        return known
    exchanger = Exchanger(cluster.http, Instruments(NoOpTracer(), lambda *_: None))
    catalog = ServiceCatalog(exchanger, consumer.registry.registry_namespaces)
    lists = cluster.deciding.target.lists
    return replace(
        known,
        denied_labels=tuple(sorted(lists.labels)),
        denied_annotations=tuple(sorted(lists.annotations)),
        discovery=discovery_settings(consumer),
        services=await catalog.services(),
    )
