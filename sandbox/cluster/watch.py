"""The watch stream over HTTP: initial state, live events, bookmarks, and the ways in which it ends.

It ends cleanly when its time is over, when the kind goes away or the server restarts, and when the reader is too slow:
a real server drops a reader that does not read, without an ERROR, and so does this one. The reader resumes from the
last resourceVersion that it saw.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from sandbox.cluster.listing import ListOptions
from sandbox.cluster.render import Renderer, event_line
from sandbox.cluster.selectors import Selector
from sandbox.cluster.status import ApiError, version_too_large
from sandbox.cluster.store import Entry, Event, EventType, Log, Store, encode, renumbered

_BATCH_EVENTS = 100
"""Events per write: enough to be fast, few enough that other requests get their turn."""

_SLOW_WRITE_S = 0.25
_SLOW_BACKLOG_EVENTS = 200
"""A reader that kept a write waiting for longer than this, and has more than this to read, is dropped.

Only for what happened since its watch began: who catches up with the past may take its time.
"""

_TIMEOUT_S = (1_800, 3_600)
"""A watch without timeoutSeconds lives for a random time in this range."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`bookmark_interval_s` is a minute on a real server; tests shorten it."""

    bookmark_interval_s: float = 60.0


def bookmark_times(interval_s: float, timeout_s: float) -> Iterator[float]:
    """Yield when bookmarks are due, in seconds from the start of a watch.

    One each interval, and two in the last thirtieth of an interval (2 s of 60) before the end; a watch shorter than a
    sixth of an interval gets none.
    """
    if timeout_s < interval_s / 6:
        return
    last_s = timeout_s - interval_s / 30
    number = 1
    while number * interval_s < last_s:
        yield number * interval_s
        number += 1
    yield last_s
    yield last_s + interval_s / 60


def view(event: Event, selector: Selector) -> tuple[EventType, Entry] | None:
    """Return what a watch with `selector` shows of a write, or None.

    An object that leaves the selection is DELETED for this watch: its state before, under the new resourceVersion.
    """
    if selector.trivial:
        return event.type, event.entry
    before = event.previous is not None and selector(event.previous)
    after = event.type != "DELETED" and selector(event.entry)
    if after:
        return ("MODIFIED" if before else "ADDED"), event.entry
    if not before or event.previous is None:
        return None
    return "DELETED", event.entry if event.type == "DELETED" else renumbered(event.previous, event.version)


class Watch:
    """One open stream, and what may be done to it from outside."""

    def __init__(self, resource: str, response: web.StreamResponse, request: web.Request) -> None:
        self.resource = resource
        self.wake = asyncio.Event()
        self.ended = False
        self.silent = False
        self._response = response
        self._request = request

    def end(self) -> None:
        """End cleanly, after what was written so far."""
        self.ended = True
        self.wake.set()

    def abort(self) -> None:
        """Cut the connection: the reader sees a reset or an incomplete chunk."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def silence(self) -> None:
        """Send nothing more, and keep the connection open: as a half-open connection looks to the reader."""
        self.silent = True

    async def send(self, data: bytes) -> None:
        """Write raw bytes between the events: half a line, garbage, an ERROR."""
        await self._response.write(data)


@dataclass(slots=True)
class Stream:
    """Everything one watch needs."""

    store: Store
    renderer: Renderer
    options: ListOptions
    settings: WatchSettings
    watches: set[Watch]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a watch request; raises ApiError before the stream begins, later errors become ERROR events."""
        resource = self.renderer.kind.resource
        log = self.store.log(resource)
        initial = self._initial()
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        watch = Watch(resource, response, request)
        try:
            position = log.end if initial is not None else log.position_after(self.options.version_number)
        except ApiError as error:
            await response.prepare(request)
            await response.write(event_line("ERROR", encode(error.status())))
            return response
        self.watches.add(watch)
        log.waiters.add(watch.wake.set)
        try:
            await response.prepare(request)
            if initial is not None:
                await self._send_initial(response, initial, self.store.version)
            await self._follow(watch, response, log, position)
        except ConnectionResetError:
            pass  # the reader is gone, and it alone would want to know
        finally:
            self.watches.discard(watch)
            log.waiters.discard(watch.wake.set)
        return response

    def _initial(self) -> list[Entry] | None:
        """Return the objects to send first, or None for a watch that starts at a resourceVersion."""
        version = self.options.version_number
        if self.options.initial_events is not None and version > self.store.version:
            raise version_too_large(version, self.store.version)
        wanted = self.options.initial_events
        if wanted is None:
            wanted = version == 0
        return (
            [entry for entry in self.store.entries(self.renderer.kind.resource) if self.options.selector(entry)]
            if wanted
            else None
        )

    async def _send_initial(self, response: web.StreamResponse, entries: list[Entry], version: int) -> None:
        for start in range(0, len(entries), _BATCH_EVENTS):
            batch = entries[start : start + _BATCH_EVENTS]
            await response.write(b"".join(self.renderer.event("ADDED", entry) for entry in batch))
        if self.options.bookmarks:
            await response.write(self.renderer.bookmark(version, initial_end=True))

    async def _follow(self, watch: Watch, response: web.StreamResponse, log: Log, position: int) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        timeout_s = self.options.timeout_s or random.uniform(*_TIMEOUT_S)
        bookmarks = bookmark_times(self.settings.bookmark_interval_s, timeout_s) if self.options.bookmarks else iter(())
        bookmark_s = next(bookmarks, timeout_s)
        past = log.end
        while not watch.ended:
            watch.wake.clear()
            events = log.read(position, _BATCH_EVENTS)
            if events is None:
                return  # what comes next is forgotten: the reader was too slow
            if events and not watch.silent:
                position += len(events)
                slow = await self._send(response, events)
                if slow and position > past and log.end - position > _SLOW_BACKLOG_EVENTS:
                    return
                continue
            if log.closed:
                return
            elapsed_s = loop.time() - started_s
            if elapsed_s >= timeout_s:
                return
            if elapsed_s >= bookmark_s:
                bookmark_s = next(bookmarks, timeout_s)
                if not watch.silent:
                    await response.write(self.renderer.bookmark(self.store.version))
                continue
            await _wait(watch.wake, min(bookmark_s, timeout_s) - elapsed_s)

    async def _send(self, response: web.StreamResponse, events: list[Event]) -> bool:
        """Write events; returns whether the reader kept the write waiting."""
        # A watch from the future shows nothing until the numbers have come that far.
        since, selector = self.options.version_number, self.options.selector
        shown = (view(event, selector) for event in events if event.version > since)
        data = b"".join(self.renderer.event(*event) for event in shown if event is not None)
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        if data:
            await response.write(data)
        else:
            await asyncio.sleep(0)
        return loop.time() - before_s > _SLOW_WRITE_S


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
