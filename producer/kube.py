"""The adapter to the Kubernetes API: list pages and watch streams as items. It moves bytes and decides nothing.

Items come in batches, as the socket brought them, so that a thousand objects do not cost a thousand turns of the event
loop. Whatever goes wrong is an item, too; nothing but cancellation is raised.
"""

import random
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

import httpx
from msgspec import Struct

from producer.items import TOO_LARGE, Closed, Item, Lost, Malformed, Page, Refused, Silent, Watched
from producer.reading import LineSplitter, Reader
from shared.errors import TransientError, UnreachableError
from shared.kubernetes_errors import Answer, Identity, identity_in, raise_for, translated
from shared.objects import ObjectKey, compare_resource_versions
from shared.transport import NO_ANSWER, AnswerTooLongError

PAGE_SIZE: Final = 500
_SMALLER: Final = 8  # how many times, after a page that was too long
WATCH_S: Final = (240, 480)  # spread, so that not all watches of a server end together
_JSON: Final = "application/json"


class Clients(Struct, frozen=True):
    """Two ways to one API server: a full watch must not stand in the way of a list.

    `watching` is for streams: its read timeout is the limit of inactivity. `control` is for everything else.
    """

    watching: httpx.AsyncClient
    control: httpx.AsyncClient


class _TooLong(Malformed, frozen=True):
    """A page that is longer than an honest one; one of fewer objects may be shorter."""


class WatchApi:
    """List and watch of one kind, in one namespace or in all, of the objects with the labels of `selector` or of all.

    Raises nothing: what goes wrong is an item. Only `uid_of` has no stream to say it in.
    """

    def __init__(self, reader: Reader, clients: Clients, *, namespace: str = "", selector: str = "") -> None:
        scope = f"/namespaces/{namespace}" if namespace else ""
        self.watched = Watched(reader.kind, namespace)
        self._path = f"/apis/{reader.api_version}{scope}/{reader.kind.plural}"
        self._selected = {"labelSelector": selector} if selector else {}
        self._reader = reader
        self._clients = clients
        self._page_size = PAGE_SIZE

    async def uid_of(self, key: ObjectKey) -> str | None:
        """Return the uid of an object, whatever its labels; None when there is none.

        Raises an IsvcSyncError when there is no answer: only the object itself, or a 404 about it, is one.
        """
        kind, what = self._reader.kind, f"reading {key}"
        namespace, name = quote(key.namespace, safe=""), quote(key.name, safe="")
        path = f"/apis/{self._reader.api_version}/namespaces/{namespace}/{kind.plural}/{name}"
        with translated(what):
            response = await self._clients.control.get(path)
        if response.status_code == httpx.codes.NOT_FOUND:
            answer = Answer.of(response)
            if answer.is_status and answer.reason == "NotFound":
                return None
        raise_for(response, what)  # a 404 without that reason: the kind is not installed, which says nothing
        found = identity_in(response, what)
        if found != Identity(kind.kubernetes_kind, key.namespace, key.name, found.uid):
            raise UnreachableError(f"{what}: the answer is another object")
        return found.uid

    async def page(self, token: str) -> Item:
        """Read one page; resourceVersion stays unset, so the list is consistent and never an old cache's.

        A list whose objects are so large that a page is too long goes on in smaller ones.
        """
        if not token:
            self._page_size = PAGE_SIZE
        while True:
            page = await self._page({"limit": str(self._page_size)} | ({"continue": token} if token else {}))
            if not isinstance(page, _TooLong) or self._page_size == 1:
                return page
            self._page_size = max(1, self._page_size // _SMALLER)

    async def _page(self, params: Mapping[str, str]) -> Item:
        try:
            response = await self._clients.control.get(self._path, params={**self._selected, **params})
        except httpx.ReadTimeout:
            return Silent()
        except AnswerTooLongError as error:
            return _TooLong(str(error))
        except (*NO_ANSWER, TransientError) as error:  # also an encoding that is none
            return _unanswered(error)
        return _answer_trouble(response) or self._reader.page(response.content)

    def initial(self) -> AsyncGenerator[list[Item], None]:
        """Open a watch that begins with the whole, consistent state (WatchList)."""
        return self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})

    async def watch(self, resource_version: str, known: str = "") -> AsyncGenerator[list[Item], None]:
        """Open a watch of what happens after `resource_version`, unless the server is behind `known`.

        Over an etcd that was put back to an older copy it would be silent until its numbers have caught up, and then
        leave out what was put back. The resourceVersion of a consistent list says it at once.
        """
        known = known or resource_version
        now = await self._page({"limit": "1"})
        if isinstance(now, Page) and compare_resource_versions(now.resource_version, known) >= 0:
            async with aclosing(self._stream({"resourceVersion": resource_version})) as stream:
                async for items in stream:
                    yield items
        elif isinstance(now, Page):
            said = f"a list is at {now.resource_version}, the watch was at {known}"
            yield [Refused(504, "Timeout", said, (TOO_LARGE,))]
        else:
            yield [now]

    async def _stream(self, how: Mapping[str, str]) -> AsyncGenerator[list[Item], None]:
        limit_s = str(random.randint(*WATCH_S))  # noqa: S311 - spread, no secret
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": limit_s}
        params |= {**self._selected, **how}
        # No compression: it would hold small events back until a block is full.
        headers = {"Accept-Encoding": "identity"}
        began = time.monotonic()
        try:
            async with self._clients.watching.stream("GET", self._path, params=params, headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                trouble = _answer_trouble(response)
                if trouble is not None:
                    yield [trouble]
                    return
                yield []  # open: says that we are connected
                async for items in self._batches(response):
                    yield items
            yield [Closed(time.monotonic() - began)]
        except httpx.ReadTimeout:
            yield [Silent()]
        except (*NO_ANSWER, TransientError) as error:  # also an encoding that is none
            yield [_unanswered(error)]

    async def _batches(self, response: httpx.Response) -> AsyncGenerator[list[Item], None]:
        splitter = LineSplitter()
        async for chunk in response.aiter_raw():
            lines = splitter.feed(chunk)
            yield [line if isinstance(line, Malformed) else self._reader.line(line) for line in lines]
        # What follows the last line end was cut off; the server will send it again.


def _answer_trouble(response: httpx.Response) -> Refused | Malformed | None:
    """Return what is wrong with an answer before its body is believed. Of an error the body must have been read."""
    if not response.is_success:
        answer = Answer.of(response)
        return Refused(answer.status, answer.reason, answer.message, answer.causes, answer.retry_after_s)
    content_type = response.headers.get("Content-Type", "")
    if not content_type.startswith(_JSON):
        return Malformed(f"the answer is {content_type[:100] or 'of no type'}, not JSON: is it a proxy's?")
    return None


def _unanswered(error: Exception) -> Lost | Malformed:
    """Return what an error of the way says: an answer that cannot be read is one, and the next may be like it."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    return Malformed(said) if isinstance(error, httpx.DecodingError) else Lost(said)
