"""The targets of a replay, opened: what is started, connected and made for it, and taken down by the stack again."""

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct
from opentelemetry.trace import NoOpTracer

from cli.addresses import Addresses
from cli.connecting import connected
from cli.demo.processes import Child
from cli.replaying.world import Mirror, Seeding, become, environ_of
from consumer.registry import ModelRegistry
from consumer.requests.exchange import Instruments
from consumer.requests.inflight import InFlightLimit
from consumer.requests.registry_client import RegistryAccess, RegistryClient
from consumer.settings import RegistrySettings
from replay.capture import Header
from replay.plan_text import clean
from replay.target.choice import Guise, Target, TargetKind
from replay.target.kube import Tally
from replay.target.nats import STREAM_BYTES, ReplayStreams
from replay.target.outcome import Held, Row, rows
from replay.target.play import Played
from replay.target.stage import Around, EventStage
from sandbox import world as local
from shared.broker import BrokerSettings
from shared.errors import SettingsError
from shared.settings import load

_LOG_LINES: Final = 3
_NATS_VARIABLES: Final = ("NATS_CREDS_FILE", "NATS_CA_FILE", "SHARDS", "STREAM_MAX_BYTES", "STREAM_REPLICAS")
_REGISTRY_VARIABLES: Final = (
    *("REGISTRY_TOKEN_FILE", "REGISTRY_CA_FILE", "REGISTRY_API_VERSION", "REGISTRY_IN_FLIGHT"),
)


class Order(Struct, frozen=True, kw_only=True):
    """What is to be opened. `wait_s`: for readers, and for what is under way. `say` tells a person how it goes."""

    target: Target
    guise: Guise
    header: Header
    wait_s: float
    keep: bool
    environ: Mapping[str, str]
    say: Callable[[str], None]


class Outcome(Struct, frozen=True, kw_only=True):
    """What a replay led to. `rows` is None where no registry was played to. `dead`: reasons by object.

    `cluster` is there where a cluster was played to.
    """

    rows: tuple[Row, ...] | None
    compared: bool
    dead: dict[str, str]
    duplicates: int
    unreadable: int
    cluster: Tally | None = None


class Opened:
    """An open target. `kept`: what a person should know where it is kept; `runs`: it ends with this process."""

    def __init__(self, order: Order, streams: ReplayStreams, events: EventStage) -> None:
        self.name = order.guise.name
        self.events = events
        self.kept: tuple[str, ...] = ()
        self.runs = False
        self.registry: RegistrySettings | None = None
        self._order = order
        self._streams = streams

    async def settled(self) -> None:
        """Return when every event has been dealt with, at once where nobody reads them. Raises UnreachableError."""
        if self.runs or (await self._streams.reading()).consumers:
            await self.events.settled()

    async def outcome(self, played: Played) -> Outcome:
        """Read what the replay led to. Raises the errors of the adapters."""
        dead = await self._streams.dead_letters()
        compared = self._order.target.kind is TargetKind.SANDBOX and played.whole and bool(played.expected)
        found = None
        if self.registry is not None:
            uids = self._order.guise.uid
            objects = {key: {uids(each) for each in known} for key, known in played.objects.items()}
            held = await _held(self.registry, self._environments(played), self._order.guise.cluster_id)
            found = rows(objects, held, played.expected if compared else None, dead)
        return Outcome(
            rows=found,
            compared=compared,
            dead=dead,
            duplicates=self.events.duplicates,
            unreadable=self.events.unreadable,
        )

    def _environments(self, played: Played) -> set[str]:
        guise = self._order.guise
        named = {fact.environment for facts in played.expected for fact in facts.records}
        template = guise.environment.replace("{cluster}", guise.cluster)
        return named | {template.replace("{namespace}", key.namespace) for key in played.objects}


async def open_stage(order: Order, stack: AsyncExitStack) -> Opened:
    """Open the target; `stack` ends everything that was started and removes what was made.

    Raises SettingsError, RefusedToStartError and UnreachableError.
    """
    if order.target.kind is TargetKind.NATS:
        return await _open_broker(order, stack)
    return await _open_world(order, stack)


async def _open_broker(order: Order, stack: AsyncExitStack) -> Opened:
    """Open a stream for whoever reads it; wait for the first one, unless the events are kept."""
    given = {name: order.environ[name] for name in _NATS_VARIABLES if name in order.environ}
    limits = {"STREAM_MAX_BYTES": str(STREAM_BYTES)}
    settings = load(BrokerSettings, limits | given | {"NATS_URL": order.target.url})
    streams = ReplayStreams(await connected(settings, stack), settings, order.guise)
    # In tasks of their own: this one is cancelled by Ctrl-C, and calls to JetStream would say so (`translated`).
    try:
        await streams.open()
    except asyncio.CancelledError:
        await asyncio.create_task(streams.remove_unused(), name="removing what was just made")
        raise
    if not order.keep:
        stack.push_async_callback(lambda: asyncio.create_task(streams.remove(), name="removing the streams"))
    stage = EventStage(streams, order.guise, order.wait_s)
    opened = Opened(order, streams, stage)
    names = ", ".join(streams.all_names)
    opened.kept = (f"Kept: the streams {names}. Remove them with `nats stream rm`, one after the other.",)
    for line in _told(order, settings):
        order.say(line)
    if not order.keep:
        order.say(f"Waiting for a consumer of {streams.names.events} ...")
        await stage.read_by(1)
    return opened


def _told(order: Order, settings: BrokerSettings) -> tuple[str, ...]:
    guise = order.guise
    variables = {
        "SUBJECT_PREFIX": guise.prefix,
        "CLUSTER_NAME": guise.cluster,
        "ENVIRONMENT_NAME": guise.environment,
        "SHARDS": str(settings.shards),
        "STREAM_MAX_BYTES": str(settings.stream_max_bytes),
        "WRITE_BACK": "off",
    }
    return (
        "A consumer of these events needs: " + " ".join(f"{name}='{value}'" for name, value in variables.items()),
        f"They say that they are from cluster id {guise.cluster_id}; it takes them if that is its own (--cluster-id).",
    )


async def _open_world(order: Order, stack: AsyncExitStack) -> Opened:
    """Start a world with a consumer in it that writes to the world's own registry, or to the one that is named."""
    if order.target.kind is TargetKind.REGISTRY:
        await _require_answer(order)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isvc-sync-replay-")))
    running = await stack.enter_async_context(local.world(directory, local.Options(kserve=False)))
    become(running, order.guise, order.header)
    environ = environ_of(running, order.guise, order.header) | {"STREAM_MAX_BYTES": str(STREAM_BYTES)}
    if order.target.kind is TargetKind.REGISTRY:
        environ |= {name: order.environ[name] for name in _REGISTRY_VARIABLES if name in order.environ}
        environ["REGISTRY_URL"] = order.target.url
    registry = load(RegistrySettings, environ)
    broker = load(BrokerSettings, environ)
    streams = ReplayStreams(await connected(broker, stack), broker, order.guise)
    await streams.open()
    consumer = await Child.start("consumer", ["consumer"], environ, directory / "consumer.log")
    stack.push_async_callback(consumer.end)
    seeding = Seeding(running.registry)
    around = Around(
        learn=seeding.learn if order.target.kind is TargetKind.SANDBOX else Around().learn,
        present=Mirror(running.cluster).present,
        ended=lambda: _last_words(consumer),
        log=lambda: clean("".join(consumer.last_lines(1))),
    )
    stage = EventStage(streams, order.guise, order.wait_s, around)
    await stage.read_by(broker.shards)
    opened = Opened(order, streams, stage)
    opened.runs, opened.registry = True, registry
    opened.kept = (*Addresses.of(running).lines(), f"consumer's log   {consumer.log}")
    return opened


def _last_words(consumer: Child) -> str:
    """Return how the consumer ended, "" while it runs."""
    if consumer.exit_code is None:
        return ""
    return f"The consumer has ended ({consumer.exit_code}): {' / '.join(consumer.last_lines(_LOG_LINES))}"


async def _held(settings: RegistrySettings, environments: set[str], cluster_id: str) -> list[Held]:
    """Read the records of that cluster id, with the names of their environments as far as these are known."""
    async with _registry(settings) as registry:
        names = {await registry.find_environment(name): name for name in sorted(environments)}
        async with aclosing(registry.all_records()) as records:
            return [
                Held(record, names.get(record.environment_id, ""))
                async for record in records
                if record.stamp is None or record.stamp.cluster_id == cluster_id
            ]


async def _require_answer(order: Order) -> None:
    """Ask a registry that is not ours once: one that is away is no reason to start anything. Raises as adapters do."""
    given = {name: order.environ[name] for name in _REGISTRY_VARIABLES if name in order.environ}
    settings = load(RegistrySettings, given | {"REGISTRY_URL": order.target.url})
    async with _registry(settings) as registry:
        await registry.find_environment(order.guise.name)


@asynccontextmanager
async def _registry(settings: RegistrySettings) -> AsyncIterator[ModelRegistry]:
    assert settings.registry_url is not None, "it was given"
    try:
        access = RegistryAccess(
            base_url=settings.registry_url,
            token_file=Path(settings.registry_token_file) if settings.registry_token_file else None,
            ca_file=Path(settings.registry_ca_file) if settings.registry_ca_file else None,
            api_version=settings.registry_api_version,
        )
    except ValueError as error:
        raise SettingsError(f"--to {error}.") from error
    client = RegistryClient(access, InFlightLimit(1), Instruments(NoOpTracer(), lambda *_: None))
    try:
        yield ModelRegistry(client, lambda: math.inf)
    finally:
        await client.close()
