"""From what a reflector sees to what is published: the store behind the watch of one kind.

    Reflector ──► Relay ──► Inventory ──changes──► Outbox ──► Publisher ──► JetStream

Guarantees: a pass begins only when everything published before it is acknowledged, with the inventory read anew from
the broker; no delete is concluded from an absence that has another reason (`producer/selection.py`); the sync marker
follows the acknowledgement of its pass, and those of all other namespaces of its kind.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from producer.audit import Missed, older, run_audit
from producer.changes import Change, Entry
from producer.checkpoint import Checkpoint
from producer.completeness import Completeness
from producer.guard import Uids
from producer.inventory import Inventory
from producer.items import Begin, Item, Lost, Observed, Watched
from producer.kube import WatchApi
from producer.ledger import Holdings
from producer.metrics import ProducerMetrics
from producer.outbox import Outbox
from producer.passes import Epoch, Outcome, Scope, Verified
from producer.reflector import Reflector
from producer.selection import Selection
from producer.states import HELD, SENTENCES
from shared.errors import PermanentError, TransientError
from shared.objects import ObjectKey

logger = logging.getLogger(__name__)

GUARD_AGAIN_S: Final = 30.0  # until the second look at a pass that would delete too much


class World(Struct, frozen=True):
    """What the relays of a process share.

    `load` reads the inventory that a list is compared with, and returns when the epoch is known from all of them.
    `restored` is told by the relay that finds etcd put back: all others have to list, too. `now` is the wall clock.
    """

    outbox: Outbox
    load: Callable[[Watched], Awaitable[Holdings]]
    epoch: Epoch
    completeness: Completeness
    metrics: ProducerMetrics
    restored: Callable[["Relay"], None]
    now: Callable[[], float] = time.time


class Relay:
    """Publishes what happens to the objects of one kind, in one namespace or in all; see `reflector.Store`."""

    def __init__(self, api: WatchApi, selection: Selection, world: World) -> None:
        self.kind = api.watched.kind
        self.inventory = Inventory(world.epoch)
        self.reflector = Reflector(api, self, world.metrics)
        self._api = api
        self._selection = selection
        self._world = world
        self._scope: Scope = None
        self._checkpoint = Checkpoint()
        self._moved = asyncio.Event()
        self._corrected = 0  # synthetic events of the present pass
        self._after_pass: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            await self.reflector.run()
        finally:
            self._stop_after_pass()

    async def audit(self) -> None:
        """Look whether the watch has missed anything; if so, say it and list. Does not disturb the watch (R41)."""
        if not self.reflector.follows:
            return
        missed = await run_audit(self._api.page, self.inventory, self, self._confirmed_gone)
        if missed is not None and missed.restored:
            self.reflector.resync("a list is older than the watch; was etcd restored?", probe=True)
        elif missed:
            self._accuse(missed)
            self.reflector.resync("the watch is stuck" if missed.stuck else "the watch has missed changes", probe=True)
        elif self.inventory.left_scope:
            self.reflector.resync("are the objects that left the selection still there?", probe=True)
        elif self.reflector.pages_only:
            self.reflector.resync("is WatchList supported now?", probe=True)

    @property
    def position(self) -> str:
        """Up to where the inventory has been told everything."""
        return self._checkpoint.seen

    async def reached(self, version: str) -> None:
        """Wait until the watch has come to `version`."""
        while older(self._checkpoint.seen, version):
            self._moved.clear()
            await self._moved.wait()

    def listening_s(self) -> float:
        """Return for how long nothing but the server has kept the watch from going on."""
        return self.reflector.listening_s()

    @property
    def scope(self) -> Scope:
        """The namespaces that the last list was about, None for all of them."""
        return self._scope

    def approve(self, uids: Uids) -> None:
        """Let the next list delete these although the guard holds them: a person says that they are gone."""
        self.inventory.approve(uids)
        self.reflector.resync("held deletes are released")

    async def settled(self) -> Item:
        """Wait for all acknowledgements, then take over the inventory."""
        self._stop_after_pass()
        await self._world.outbox.settled()
        try:
            holdings = await self._world.load(self._api.watched)
        except (TransientError, PermanentError) as error:
            return Lost(str(error))
        marker = holdings.marker
        self.inventory.reload(holdings.entries, (marker.epoch, marker.resource_version) if marker else (0, ""))
        await self._selection.known()
        return Begin()

    def begin_pass(self) -> None:
        self._corrected = 0
        self._checkpoint.reset("")  # until the pass is complete there is no position
        self._scope = self._selection.scope()
        self.inventory.begin_pass(self._scope)

    async def observe(self, found: Observed, *, live: bool) -> None:
        position = found.resource_version if live else ""
        if self._selected(found):
            epoch = self._world.epoch.value
            changes = self.inventory.observe(found, live=live, now_s=self._now_s())
            await self._publish(changes, position)
            if self._world.epoch.value != epoch:
                self._renumbered(live=live)
        if position:
            self.passed(position)

    async def remove(self, found: Observed) -> None:
        if self._selected(found):
            if await self._selection.exists_still(found.key, found.uid):
                self.inventory.left(found.key, found.uid)  # no longer selected: DELETED says that, too (R26)
            else:
                await self._publish(self.inventory.remove(found, now_s=self._now_s()), found.resource_version)
        self.passed(found.resource_version)

    async def end_pass(self, version: str, doubtful: int) -> None:
        verified = await self._verified()
        epoch = self._world.epoch.value
        outcome = self.inventory.end_pass(version, doubtful=doubtful, now_s=self._now_s(), verified=verified)
        if self._world.epoch.value != epoch:
            self._world.restored(self)
        await self._publish(outcome.changes, "")
        self._checkpoint.reset(version)
        self._moved.set()
        fields = {**self._fields(), "objects": self.inventory.living(), "resource_version": version}
        logger.info("list is complete", extra={**fields, "published": self._corrected})
        if outcome.left_scope:
            logger.warning("objects have left the selection", extra={**self._fields(), "count": outcome.left_scope})
        self._follow_up(outcome, version)

    def passed(self, position: str) -> None:
        self._checkpoint.passed(position)
        self._moved.set()

    def restored(self) -> None:
        self._world.restored(self)

    async def absent(self) -> None:
        """Hold every delete: a kind that is not installed says nothing about its objects, unless a person does."""
        outcome = self.inventory.kind_absent(self._now_s())
        await self._publish(outcome.changes, "")

    def resume_at(self, position: str) -> str:
        return self._checkpoint.position or position

    def _selected(self, found: Observed) -> bool:
        if self._scope is None or found.key.namespace in self._scope:
            return True
        self._selection.met(found.key.namespace)
        return False

    def _accuse(self, missed: Missed) -> None:
        if missed.stuck:
            self._world.metrics.trouble(self._api.watched, "stuck")
            logger.warning(SENTENCES["stuck"], extra={**self._fields(), "position": self.position})
        if not any(missed.counts.values()):
            return
        for what, count in missed.counts.items():
            self._world.metrics.missed(self.kind, what, count)
        fields = {**self._fields(), "missed": missed.counts, "objects": list(map(str, missed.samples))}
        logger.error("the watch has missed changes; listing", extra=fields)

    def _renumbered(self, *, live: bool) -> None:
        """Let all lists be read again, since an object has shown that the numbering is a new one."""
        self._world.restored(self)
        if live:
            self.reflector.resync("an object contradicts what was said of it; was etcd restored?")

    async def _verified(self) -> Verified:
        """Find out which of the objects that the list lacks are there all the same, or have gone with a namespace."""
        absent = self.inventory.absent()
        return await self._selection.verified({key: entry.uid for key, entry in absent.items()}, self._scope)

    async def _publish(self, changes: tuple[Change, ...], position: str) -> None:
        """Queue changes; `position` is that of the live event behind them, empty in a pass."""
        for change in changes:
            if position:
                self._checkpoint.sent(position)
            if change.corrects is not None:
                self._corrected += 1
                self._world.metrics.synthetic(self.kind, change.type)
            await self._world.outbox.publish(change, partial(self._acknowledged, change, position))

    def _acknowledged(self, change: Change, position: str, sequence: int) -> None:
        self.inventory.acknowledged(change.key, sequence)
        if position:
            self._checkpoint.acknowledged(position)

    def _follow_up(self, outcome: Outcome, version: str) -> None:
        if outcome.complete:
            self._after_pass = asyncio.create_task(self._announce(version), name=f"sync marker {self.kind}")
        elif outcome.held:
            logger.error(HELD, extra={**self._fields(), "held": outcome.held})
            self._after_pass = asyncio.create_task(self._look_again(), name=f"second look {self.kind}")

    async def _announce(self, version: str) -> None:
        await self._world.outbox.settled()
        marker = self._world.completeness.reached(self._api.watched, self._scope, version, self._world.epoch.value)
        if marker is not None:
            await self._world.outbox.announce(self.kind, marker)

    async def _look_again(self) -> None:
        await asyncio.sleep(GUARD_AGAIN_S)
        self.reflector.resync("second look at held deletes")

    def _stop_after_pass(self) -> None:
        if self._after_pass is not None:
            self._after_pass.cancel()
            self._after_pass = None

    async def _confirmed_gone(self, suspects: Mapping[ObjectKey, Entry]) -> Iterable[ObjectKey]:
        uids = {key: entry.uid for key, entry in suspects.items()}
        return suspects.keys() - (await self._selection.verified(uids, self._scope)).elsewhere

    def _fields(self) -> dict[str, str]:
        return {"kind": self.kind, "namespace": self._api.watched.namespace}

    def _now_s(self) -> int:
        return int(self._world.now())
