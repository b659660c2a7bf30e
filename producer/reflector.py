"""The loop around `watch.step`: performs what the state machine asks for, and feeds it what comes.

    producer/kube.py ──items──► watch.step ──effects──► Store (producer/relay.py)

Guarantees: one source of items at a time, the old one closed before the next is opened; the next items are not read
before the store is done with the ones before, so the socket is not read while the store has no room.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Protocol, assert_never, get_args

from producer.hearing import bounded
from producer.items import Bookmark, Gone, Item, Observed, Page, Resync, Seen, Waited, Watched
from producer.kube import WatchApi
from producer.states import (
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

logger = logging.getLogger(__name__)

FRESH_S: Final = 150.0  # bookmarks come every minute: when two are missing, the watch is not believed
_HELD_S: Final = 0.2  # a store that takes longer for a batch has no room


class Store(Protocol):
    """What a reflector fills. Each call is finished before the next item is read."""

    async def settled(self) -> Item:
        """Get ready for a complete pass. Return `Begin`, or `Lost` with what is in the way."""

    def begin_pass(self) -> None:
        """Forget what an unfinished pass has seen, and begin one."""

    async def observe(self, found: Observed, *, live: bool) -> None:
        """Take an object that exists; `live`: it has just changed."""

    async def remove(self, found: Observed) -> None:
        """Take an object whose DELETED event came."""

    async def end_pass(self, version: str, doubtful: int) -> None:
        """Conclude a complete pass."""

    def passed(self, position: str) -> None:
        """Note that everything up to `position` was seen."""

    async def absent(self) -> None:
        """Note that the server does not know the kind (404)."""

    def restored(self) -> None:
        """Note that the server is behind what it said before: etcd was put back to an older copy."""

    def resume_at(self, position: str) -> str:
        """Return from where a watch is to be opened that had come to `position`."""


class Ear(Protocol):
    """Counts what happens to watches."""

    def connected(self, watched: Watched, *, connected: bool) -> None:
        """Note whether the stream is open."""

    def trouble(self, watched: Watched, reason: str) -> None:
        """Note why a stream or list ended."""


class Reflector:
    """Follows one list and watch, for ever."""

    def __init__(self, api: WatchApi, store: Store, ear: Ear) -> None:
        self._api = api
        self._store = store
        self._ear = ear
        self._reading: asyncio.Future[list[Item]] | None = None
        self._interruptible = False  # whether the source may be cut off: after a pause or a settling, something follows
        self._wanted: Resync | None = None
        self._state: State | None = None
        self._free_since = 0.0  # since when nothing but the server was waited for
        # for readiness, which is read from another thread: plain values
        self._synced = False
        self._connected = False
        self._trouble: Trouble | None = None
        self._heard_at = float("-inf")

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            self._state, effects = start()
            while True:
                request = await self._perform(effects)
                assert request is not None, "a state without a source of items"
                effects = await self._follow(request)
        finally:
            self._set_connected(connected=False)

    def resync(self, reason: str, *, probe: bool = False) -> None:
        """Begin a new pass as soon as possible; interrupts a stream, but neither work on what was read nor a pause.

        `probe`: find out anew whether the server can stream its state.
        """
        self._wanted = Resync(reason, probe)
        if self._reading is not None and self._interruptible:
            self._reading.cancel()

    @property
    def follows(self) -> bool:
        """Whether a complete pass is behind it and the stream is open."""
        return self._synced and self._connected

    @property
    def kind_is_absent(self) -> bool:
        """Whether the server said last that it does not know the kind. May be called from another thread."""
        return self._trouble is not None and self._trouble.reason == "absent"

    @property
    def pages_only(self) -> bool:
        """Whether the server was found unable to stream its state."""
        return self._state is not None and not self._state.memory.watch_list

    def readiness(self) -> str | None:
        """Return None, or a sentence that says what is missing. May be called from another thread."""
        if self.kind_is_absent:
            return None  # a kind that is not installed has no objects
        if not self._synced:
            return f"no complete list yet{self._because()}"
        if not self._connected:
            return f"the watch is not open{self._because()}"
        silent_s = time.monotonic() - self._heard_at
        return f"the watch has been silent for {silent_s:.0f} s" if silent_s > FRESH_S else None

    def listening_s(self) -> float:
        """Return for how long nothing but the server has kept an open watch from going on."""
        if not self.follows or self._reading is None:
            return 0.0  # not open, or the store has no room
        return asyncio.get_running_loop().time() - self._free_since

    def age_s(self) -> float | None:
        """Return the seconds since the watch last brought an event or a bookmark. May be called from another thread."""
        return time.monotonic() - self._heard_at if self._synced else None

    def _because(self) -> str:
        return f": {self._trouble.reason} {self._trouble.detail}".rstrip() if self._trouble is not None else ""

    async def _follow(self, request: Request) -> tuple[Effect, ...]:
        """Step through the items of one source until another one is asked for."""
        self._interruptible = not isinstance(request, Settle | Wait)
        now = asyncio.get_running_loop().time
        async with aclosing(self._source(request)) as source:
            while True:
                batch = await self._next(source)
                if not isinstance(request, OpenInitial | OpenWatch):
                    self._free_since = now()
                began = now()
                for item in batch:
                    assert self._state is not None, "not started"
                    self._state, effects = step(self._state, item)
                    if effects and isinstance(effects[-1], get_args(Request)):
                        return effects  # the rest of the batch belongs to a source that is given up
                    await self._perform(effects)
                if now() - began > _HELD_S:
                    self._free_since = now()

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
        wanted, self._wanted = self._wanted, None
        assert wanted is not None, "nothing else interrupts a source"
        return [wanted]

    async def _source(self, request: Request) -> AsyncGenerator[list[Item], None]:
        match request:
            case Settle():
                yield [await self._store.settled()]
            case GetPage(token):
                page = await self._api.page(token)
                if isinstance(page, Page):
                    self._heard()
                yield [page]
            case OpenInitial():
                async for batch in self._stream(self._api.initial()):
                    yield batch
            case OpenWatch(position):
                async for batch in self._stream(self._api.watch(self._store.resume_at(position), position)):
                    yield batch
            case Wait(failures, at_least_s):
                chance = random.random()  # noqa: S311 - spreads load, no secret
                await asyncio.sleep(max(backoff_s(failures, chance), at_least_s))
                yield [Waited()]
            case _:
                assert_never(request)

    async def _stream(self, stream: AsyncGenerator[list[Item], None]) -> AsyncGenerator[list[Item], None]:
        """Pass a stream on, noting that it is open while it is, and when it said something."""
        async with aclosing(bounded(stream)) as batches:
            try:
                async for batch in batches:
                    if any(isinstance(item, Seen | Gone | Bookmark) for item in batch):
                        self._heard()
                    if not batch and not self._connected:  # the server has accepted the request
                        self._trouble = None
                        self._set_connected(connected=True)
                    yield batch
            finally:
                self._set_connected(connected=False)

    async def _perform(self, effects: tuple[Effect, ...]) -> Request | None:
        """Do what the state machine asks for, and return its request for another source, if there is one."""
        for effect in effects:
            match effect:
                case Observe(found, live):
                    await self._store.observe(found, live=live)
                case Remove(found):
                    await self._store.remove(found)
                case Advance(position):
                    self._store.passed(position)
                case BeginPass():
                    self._store.begin_pass()
                case EndPass(version, doubtful):
                    await self._store.end_pass(version, doubtful)
                    self._trouble = None
                    self._synced = True
                case Trouble():
                    await self._suffer(effect)
                case Settle() | GetPage() | OpenInitial() | OpenWatch() | Wait():
                    return effect
                case _:
                    assert_never(effect)
        return None

    async def _suffer(self, trouble: Trouble) -> None:
        self._note(trouble)
        if trouble.reason == "absent":
            await self._store.absent()
        elif trouble.reason == "restored":
            self._store.restored()

    def _note(self, trouble: Trouble) -> None:
        self._ear.trouble(self._api.watched, trouble.reason)
        level = logging.INFO if trouble.reason in QUIET else logging.WARNING
        if self._trouble is not None and self._trouble.reason == trouble.reason:
            level = logging.DEBUG  # said once; the counter goes on
        if trouble.reason != "unidentified":
            self._trouble = trouble
        watched = self._api.watched
        fields = {"kind": watched.kind, "namespace": watched.namespace}
        fields |= {"reason": trouble.reason, "detail": trouble.detail}
        logger.log(level, SENTENCES.get(trouble.reason, "the watch was interrupted"), extra=fields)

    def _heard(self) -> None:
        self._heard_at = time.monotonic()

    def _set_connected(self, *, connected: bool) -> None:
        self._connected = connected
        self._ear.connected(self._api.watched, connected=connected)
