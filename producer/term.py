"""One term of leadership: everything that exists only while this process leads.

Nothing known survives a change of the leader: each term begins with the inventory and a list. It ends when it is
cancelled; what is under way then gets a moment to be acknowledged.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable
from functools import partial
from typing import Final

from msgspec import Struct

from producer.completeness import Completeness
from producer.forgetting import Forgetter
from producer.holding import Holding
from producer.inventories import Inventories, Leftovers
from producer.items import Watched
from producer.kube import Clients, WatchApi
from producer.leader import Leadership
from producer.ledger import Ledger
from producer.metrics import ProducerMetrics
from producer.namespaces import ChosenNamespaces, namespace_exists
from producer.outbox import Outbox, Source
from producer.passes import Epoch
from producer.publisher import Publisher
from producer.reading import Reader
from producer.relay import Relay, World
from producer.selection import Fixed, Scoped, Selection, UidOf
from producer.settings import ProducerSettings
from shared.broker import Broker
from shared.errors import PermanentError, TransientError
from shared.holds import HoldServer
from shared.objects import Kind
from shared.running import together
from shared.startup import until_it_works
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects
from shared.telemetry import Telemetry

logger = logging.getLogger(__name__)

LAST_WORDS_S: Final = 0.3  # to get acknowledgements of what is under way
_CLOSE_S: Final = 0.1
_KEEPER_INTERVAL_S: Final = 30.0
_FORGET_INTERVAL_S: Final = 3600.0
_SPREAD: Final = (2 / 3, 4 / 3)  # of the time between two audits


class Connections(Struct, frozen=True):
    """What the process is connected to; `identity` is its own name."""

    broker: Broker
    clients: Clients
    cluster_id: str
    leadership: Leadership
    identity: str


class Office(Struct, frozen=True):
    """What a term finds and leaves behind: the process's own."""

    settings: ProducerSettings
    telemetry: Telemetry
    metrics: ProducerMetrics
    links: Connections


class Term:
    """The publisher, and a relay for each list and watch."""

    def __init__(self, office: Office) -> None:
        self._office = office
        broker = office.links.broker
        self._publisher = Publisher(broker.client, office.metrics, permitted=office.links.leadership.leads)
        self._relays: tuple[Relay, ...] = ()
        self._chosen: ChosenNamespaces | None = None
        self._completeness = Completeness(())
        self._leftovers: Leftovers | None = None
        self._holding = Holding(())
        self._epoch = Epoch()
        self._created = ""
        self.settled = True  # at its end: whether the broker has acknowledged everything
        self._reconnected = asyncio.Event()

    async def run(self) -> None:
        """Publish until cancelled."""
        office, metrics = self._office, self._office.metrics
        await self._publisher.start()
        metrics.leader(leads=True)
        try:
            ledger = self._ledger()
            self._created = await until_it_works("the event stream", lambda: self._ensured(ledger))
            self._set_up(ledger)
            server = HoldServer(office.links.broker, self._subjects(), office.links.cluster_id, office.links.identity)
            self._holding.register(server)
            async with server:
                await self._work(ledger)
        finally:
            self.settled = await _hastily(self._publisher.barrier(), LAST_WORDS_S)
            await _hastily(self._publisher.close(), _CLOSE_S)
            for kind in office.settings.kinds:
                for state in ("living", "deleted", "left-selection", "held"):
                    metrics.objects(kind, state, 0)  # the next leader counts them
            metrics.leader(leads=False)

    async def _work(self, ledger: Ledger) -> None:
        # None of these may end: a process without one of them would look alive and lose events.
        running = [relay.run() for relay in self._relays]
        running += [self._keep_stream(ledger), self._audit(), self._forget(ledger)]
        if self._chosen is not None:
            running.append(self._chosen.run())
        await together(self._publisher.task, *running)

    def on_reconnect(self) -> None:
        """Send again what was under way, and see whether the stream is still the same."""
        self._publisher.kick()
        self._reconnected.set()

    def tick(self) -> None:
        """Show the present numbers."""
        holds = self._holding.held()
        for kind in dict.fromkeys(relay.kind for relay in self._relays):
            inventories = [relay.inventory for relay in self._relays if relay.kind == kind]
            living = sum(inventory.living() for inventory in inventories)
            outside = sum(inventory.left_scope for inventory in inventories)
            if self._leftovers is not None:
                outside += self._leftovers.count(kind)
            metrics = self._office.metrics
            metrics.objects(kind, "living", living)
            metrics.objects(kind, "deleted", sum(map(len, inventories)) - living)
            metrics.objects(kind, "left-selection", outside)
            metrics.objects(kind, "held", sum(len(held.objects) for held in holds if held.kind == kind))

    def trouble(self, kind: Kind) -> str | None:
        """Return what is wrong with the watches of a kind. May be called from another thread."""
        troubles = [trouble for relay in self._relays if relay.kind == kind if (trouble := relay.reflector.readiness())]
        return troubles[0] if troubles else None if self._relays else "no complete list yet"

    def choice_trouble(self) -> str | None:
        """Return why it is not known which namespaces are wanted. May be called from another thread."""
        return self._chosen.readiness() if self._chosen is not None else None

    def refusal(self) -> str | None:
        """Return what the broker says to a message that it keeps refusing. May be called from another thread."""
        return self._publisher.refusal or None

    def age_s(self) -> float | None:
        """Return the seconds since the most silent watch said something. May be called from another thread."""
        return max((age for relay in self._relays if (age := relay.reflector.age_s()) is not None), default=None)

    def _ledger(self) -> Ledger:
        settings, broker = self._office.settings, self._office.links.broker
        stream = stream_names(settings.broker.subject_prefix).events
        return Ledger(broker.client, broker.jetstream, stream, self._subjects())

    def _subjects(self) -> Subjects:
        settings = self._office.settings
        return Subjects(settings.broker.subject_prefix, settings.naming.cluster_name, settings.broker.shards)

    def _set_up(self, ledger: Ledger) -> None:
        settings, links = self._office.settings, self._office.links
        choice = settings.selection
        kinds, namespaces = dict.fromkeys(settings.kinds), dict.fromkeys(choice.namespaces or ("",))
        watched = tuple(Watched(kind, namespace) for kind in kinds for namespace in namespaces)
        if choice.namespace_selector:
            self._chosen = ChosenNamespaces(links.clients.control, choice.namespace_selector, self._rescope)
        self._completeness = Completeness(watched)
        epoch = self._epoch
        api_version = settings.naming.api_version
        source = Source(links.cluster_id, self._subjects(), api_version, lambda: links.broker.max_payload_bytes)
        outbox = Outbox(source, self._publisher, ledger, self._office.telemetry.tracer)
        inventories = Inventories(ledger, links.cluster_id, watched, epoch)
        self._leftovers = Leftovers(inventories, self._selection(Fixed(frozenset())), outbox, epoch)
        world = World(outbox, inventories.load, epoch, self._completeness, self._office.metrics, self._restored)
        self._relays = tuple(self._relay(each, world) for each in watched)
        self._holding = Holding(self._relays)

    def _relay(self, watched: Watched, world: World) -> Relay:
        settings = self._office.settings
        reader = Reader(watched.kind, settings.naming.prefixes, settings.naming.api_version(watched.kind))
        selector = settings.selection.object_selector
        api = WatchApi(reader, self._office.links.clients, namespace=watched.namespace, selector=selector)
        scope = frozenset((watched.namespace,)) if watched.namespace else None
        uid_of = api.uid_of if selector else None
        return Relay(api, self._selection(self._chosen or Fixed(scope), uid_of), world)

    def _selection(self, namespaces: Scoped, uid_of: UidOf | None = None) -> Selection:
        return Selection(namespaces, partial(namespace_exists, self._office.links.clients.control), uid_of)

    def _rescope(self) -> None:
        for relay in self._relays:
            relay.reflector.resync("other namespaces are chosen")

    def _restored(self, found_by: Relay) -> None:
        """List all kinds: they come from the same etcd, and another may have lost the trace that one has found."""
        for relay in self._relays:
            if relay is not found_by and not relay.inventory.in_pass:
                relay.reflector.resync("etcd was restored")

    async def _keep_stream(self, ledger: Ledger) -> None:
        """Notice, after a reconnect and every half minute, that the stream was made anew: then publish everything."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KEEPER_INTERVAL_S):
                    await self._reconnected.wait()
            self._reconnected.clear()
            try:
                created = await self._ensured(ledger)
            except (TransientError, PermanentError) as error:
                logger.warning("the stream cannot be checked", extra={"error": str(error)})
                continue
            if created != self._created:
                logger.error("the event stream was created anew; publishing all objects", extra={"since": created})
                self._created = created
                self._completeness.forget()
                # A new numbering of messages, too: ids that name what they correct would mean others in this stream.
                self._epoch.begin(int(time.time()))
                for relay in self._relays:
                    relay.reflector.resync("the event stream was created anew")

    async def _ensured(self, ledger: Ledger) -> str:
        """Return when the event stream was created, which may be now."""
        await ensure_streams(self._office.links.broker.jetstream, self._office.settings.broker)
        return await ledger.created()

    async def _audit(self) -> None:
        """List beside the watches, now and then, to see whether they tell everything (R41)."""
        assert self._leftovers is not None, "set up before"
        while True:
            await self._leftovers.look()
            spread = random.uniform(*_SPREAD)  # noqa: S311 - so that not all producers list at once, no secret
            await asyncio.sleep(spread * self._office.settings.audit_interval_s)
            # Each waits for its watch to pass its list, which may take until the next bookmark.
            await asyncio.gather(*(relay.audit() for relay in self._relays))

    async def _forget(self, ledger: Ledger) -> None:
        """Purge old tombstones."""
        after_s = self._office.settings.forget_after_s
        forgetter = Forgetter(ledger, self._office.links.leadership.leads, after_s=after_s)
        while True:
            await asyncio.sleep(min(_FORGET_INTERVAL_S, after_s / 10))
            for relay in self._relays:
                await _forget_old(forgetter, relay)


async def _forget_old(forgetter: Forgetter, relay: Relay) -> None:
    fields = {"kind": relay.kind}
    try:
        forgotten = await forgetter.forget(relay.inventory)
    except (TransientError, PermanentError) as error:
        logger.warning("old deletes cannot be purged from the stream yet", extra={**fields, "error": str(error)})
        return
    if forgotten.count:
        logger.info("old deletes have left the stream", extra={**fields, "count": forgotten.count})
    if forgotten.kept:
        text = "old deletes stay in the stream: no consumer has taken them"
        logger.warning(text, extra={**fields, "count": forgotten.kept})


async def _hastily(work: Awaitable[None], within_s: float) -> bool:
    """Do something at the end, if it can be done at once; say whether it could."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await work
            return True
    return False
