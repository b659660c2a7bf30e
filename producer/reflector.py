"""The loop around `watch.step`, for one kind: performs what the state machine asks for, and feeds it what comes.

    producer/kube.py ──items──► watch.step ──effects──► Inventory ──changes──► Outbox ──► Publisher ──► JetStream

Guarantees: one source of items at a time, the old one closed before the next is opened; the socket is not read while
the outbox has no room; a pass begins only when everything published before it is acknowledged, with the inventory
read anew from the broker; the sync marker follows the acknowledgement of its pass.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, assert_never, get_args

from msgspec import Struct

from producer.changes import Change
from producer.checkpoint import Checkpoint
from producer.inventory import Epoch, Inventory, Scope
from producer.items import Begin, Item, Lost, Resync, Waited
from producer.kube import WatchApi
from producer.ledger import Holdings
from producer.metrics import ProducerMetrics
from producer.outbox import Outbox
from producer.states import (
    HELD,
    QUIET,
    SENTENCES,
    Advance,
    BeginPass,
    Effect,
    EndPass,
    GetPage,
    Observe,
    OpenInitial,
    OpenWatch,
    Remove,
    Request,
    Settle,
    State,
    Trouble,
    Wait,
)
from producer.watch import backoff_s, start, step
from shared.errors import PermanentError, TransientError
from shared.events import SyncMarker
from shared.objects import Kind

logger = logging.getLogger(__name__)

GUARD_AGAIN_S: Final = 30.0  # until the second look at a pass that would delete too much
FRESH_S: Final = 150.0  # bookmarks come every minute: when two are missing, the watch is not believed


class World(Struct, frozen=True):
    """What the reflectors of a process share.

    `load` reads the inventory of a kind, and returns when the epoch is known from all of them. `now` is the wall clock.
    """

    outbox: Outbox
    load: Callable[[Kind], Awaitable[Holdings]]
    epoch: Epoch
    metrics: ProducerMetrics
    now: Callable[[], float] = time.time


class Reflector:
    """Publishes what happens to the objects of one kind, for ever."""

    def __init__(self, kind: Kind, api: WatchApi, world: World, scope: Scope = ()) -> None:
        self.kind = kind
        self.inventory = Inventory(world.epoch)
        self._api = api
        self._world = world
        self._scope = scope
        self._checkpoint = Checkpoint()
        self._corrected = 0  # synthetic events of the present pass
        self._reading: asyncio.Future[list[Item]] | None = None
        self._interruptible = False  # whether the source may be cut off: after a pause or a settling, something follows
        self._wanted: str | None = None  # why a new pass is wanted
        self._after_pass: asyncio.Task[None] | None = None
        # for readiness, which is read from another thread: plain values
        self._synced = False
        self._connected = False
        self._trouble: Trouble | None = None
        self._heard_at = float("-inf")

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            state, effects = start()
            while True:
                request = await self._perform(effects)
                assert request is not None, "a state without a source of items"
                state, effects = await self._follow(state, request)
        finally:
            self._set_connected(connected=False)
            self._stop_after_pass()

    def resync(self, reason: str) -> None:
        """Begin a new pass as soon as possible; interrupts a stream, but neither work on what was read nor a pause."""
        self._wanted = reason
        if self._reading is not None and self._interruptible:
            self._reading.cancel()

    def readiness(self) -> str | None:
        """Return None, or a sentence that says what is missing. May be called from another thread."""
        if self._trouble is not None and self._trouble.reason == "absent":
            return None  # a kind that is not installed has no objects
        if not self._synced:
            return f"no complete list yet{self._because()}"
        if not self._connected:
            return f"the watch is not open{self._because()}"
        silent_s = time.monotonic() - self._heard_at
        return f"the watch has been silent for {silent_s:.0f} s" if silent_s > FRESH_S else None

    def age_s(self) -> float | None:
        """Return the seconds since the watch last said something. May be called from another thread."""
        return time.monotonic() - self._heard_at if self._synced else None

    def _because(self) -> str:
        return f": {self._trouble.reason} {self._trouble.detail}".rstrip() if self._trouble is not None else ""

    async def _follow(self, state: State, request: Request) -> tuple[State, tuple[Effect, ...]]:
        """Step through the items of one source until another one is asked for."""
        self._interruptible = not isinstance(request, Settle | Wait)
        async with aclosing(self._source(request)) as source:
            while True:
                for item in await self._next(source):
                    state, effects = step(state, item)
                    if effects and isinstance(effects[-1], get_args(Request)):
                        return state, effects  # the rest of the batch belongs to a source that is given up
                    await self._perform(effects)

    async def _next(self, source: AsyncGenerator[list[Item], None]) -> list[Item]:
        """Return the next batch, or the wish for a new pass."""
        if self._wanted is None:
            self._reading = asyncio.ensure_future(anext(source))
            try:
                return await self._reading
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._wanted is None or (task is not None and task.cancelling()):
                    raise  # not `resync` but the end
            finally:
                self._reading = None
        reason, self._wanted = self._wanted, None
        return [Resync(reason or "")]

    async def _source(self, request: Request) -> AsyncGenerator[list[Item], None]:
        match request:
            case Settle():
                yield [await self._settled()]
            case GetPage(token):
                page = await self._api.page(token)
                self._heard()
                yield [page]
            case OpenInitial():
                async for batch in self._stream(self._api.initial()):
                    yield batch
            case OpenWatch(position):
                async for batch in self._stream(self._api.watch(self._checkpoint.position or position)):
                    yield batch
            case Wait(failures, at_least_s):
                chance = random.random()  # noqa: S311 - spreads load, no secret
                await asyncio.sleep(max(backoff_s(failures, chance), at_least_s))
                yield [Waited()]
            case _:
                assert_never(request)

    async def _stream(self, stream: AsyncGenerator[list[Item], None]) -> AsyncGenerator[list[Item], None]:
        """Pass a stream on, noting that it is open while it is."""
        async with aclosing(stream):
            try:
                async for batch in stream:
                    self._heard()
                    if not batch:  # the server has accepted the request
                        self._trouble = None
                        self._set_connected(connected=True)
                    yield batch
            finally:
                self._set_connected(connected=False)

    async def _settled(self) -> Item:
        """Wait for all acknowledgements, then take over the inventory."""
        self._stop_after_pass()
        await self._world.outbox.settled()
        try:
            holdings = await self._world.load(self.kind)
        except (TransientError, PermanentError) as error:
            return Lost(str(error))
        marker = holdings.marker
        self.inventory.reload(holdings.entries, (marker.epoch, marker.resource_version) if marker else (0, ""))
        return Begin()

    async def _perform(self, effects: tuple[Effect, ...]) -> Request | None:
        """Do what the state machine asks for, and return its request for another source, if there is one."""
        for effect in effects:
            match effect:
                case Observe(found, live):
                    changes = self.inventory.observe(found, live=live, now_s=self._now_s())
                    await self._publish(changes, found.resource_version if live else "")
                case Remove(found):
                    await self._publish(self.inventory.remove(found), found.resource_version)
                case Advance(position):
                    self._checkpoint.passed(position)
                case BeginPass():
                    self._corrected = 0
                    self.inventory.begin_pass(self._scope)
                case EndPass(version, doubtful):
                    await self._end_pass(version, doubtful)
                case Trouble():
                    self._note(effect)
                case Settle() | GetPage() | OpenInitial() | OpenWatch() | Wait():
                    return effect
                case _:
                    assert_never(effect)
        return None

    async def _publish(self, changes: tuple[Change, ...], position: str) -> None:
        """Queue changes; `position` is that of the live event behind them, empty in a pass."""
        for change in changes:
            if position:
                self._checkpoint.sent(position)
            if change.corrects is not None:
                self._corrected += 1
                self._world.metrics.synthetic(self.kind, change.type)
            await self._world.outbox.publish(change, partial(self._acknowledged, change, position))
        if position:
            self._checkpoint.passed(position)

    def _acknowledged(self, change: Change, position: str, sequence: int) -> None:
        self.inventory.acknowledged(change.key, sequence)
        if position:
            self._checkpoint.acknowledged(position)

    async def _end_pass(self, version: str, doubtful: int) -> None:
        outcome = self.inventory.end_pass(version, doubtful=doubtful, now_s=self._now_s())
        await self._publish(outcome.changes, "")
        self._checkpoint.reset(version)
        self._trouble = None
        self._synced = True
        fields = {"kind": self.kind, "objects": self.inventory.living(), "resource_version": version}
        logger.info("list is complete", extra={**fields, "published": self._corrected})
        if outcome.left_scope:
            logger.warning("objects have left the scope", extra={"kind": self.kind, "count": outcome.left_scope})
        if outcome.complete:
            marker = SyncMarker(self._scope, version, self._world.epoch.value)
            self._after_pass = asyncio.create_task(self._announce(marker), name=f"sync marker {self.kind}")
        elif outcome.held:
            logger.error(HELD, extra={**fields, "held": outcome.held})
            self._after_pass = asyncio.create_task(self._look_again(), name=f"second look {self.kind}")

    async def _announce(self, marker: SyncMarker) -> None:
        await self._world.outbox.settled()
        await self._world.outbox.announce(self.kind, marker)

    async def _look_again(self) -> None:
        await asyncio.sleep(GUARD_AGAIN_S)
        self.resync("second look at held deletes")

    def _stop_after_pass(self) -> None:
        if self._after_pass is not None:
            self._after_pass.cancel()
            self._after_pass = None

    def _note(self, trouble: Trouble) -> None:
        self._world.metrics.trouble(self.kind, trouble.reason)
        level = logging.INFO if trouble.reason in QUIET else logging.WARNING
        if self._trouble is not None and self._trouble.reason == trouble.reason:
            level = logging.DEBUG  # said once; the counter goes on
        if trouble.reason != "unidentified":
            self._trouble = trouble
        fields = {"kind": self.kind, "reason": trouble.reason, "detail": trouble.detail}
        logger.log(level, SENTENCES.get(trouble.reason, "the watch was interrupted"), extra=fields)

    def _heard(self) -> None:
        self._heard_at = time.monotonic()

    def _set_connected(self, *, connected: bool) -> None:
        self._connected = connected
        self._world.metrics.connected(self.kind, connected=connected)

    def _now_s(self) -> int:
        return int(self._world.now())
