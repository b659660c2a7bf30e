"""The adapter to the Kubernetes API: list pages and watch streams as items. It moves bytes and decides nothing.

Items come in batches, as the socket brought them, so that a thousand objects do not cost a thousand turns of the event
loop. Whatever goes wrong is an item, too; nothing but cancellation is raised.
"""

import random
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import httpx

from producer.items import Closed, Item, LineSplitter, Lost, Malformed, Reader, Refused, Silent
from shared.errors import TransientError
from shared.kubernetes_errors import Answer

PAGE_SIZE: Final = 500
WATCH_S: Final = (240, 480)  # spread, so that not all watches of a server end together
_JSON: Final = "application/json"


class WatchApi:
    """List and watch of one kind, in one namespace or in all.

    `watching` is the client for streams: its read timeout is the limit of inactivity. `control` is for lists.
    """

    def __init__(
        self, reader: Reader, *, watching: httpx.AsyncClient, control: httpx.AsyncClient, namespace: str = ""
    ) -> None:
        scope = f"/namespaces/{namespace}" if namespace else ""
        self._path = f"/apis/{reader.kind.api_version}{scope}/{reader.kind.plural}"
        self._reader = reader
        self._watching = watching
        self._control = control

    async def page(self, token: str) -> Item:
        """Read one page; resourceVersion stays unset, so the list is consistent and never an old cache's."""
        params = {"limit": str(PAGE_SIZE)} | ({"continue": token} if token else {})
        try:
            response = await self._control.get(self._path, params=params)
        except httpx.ReadTimeout:
            return Silent()
        except (httpx.RequestError, TransientError) as error:  # also an encoding that is none
            return _lost(error)
        return _answer_trouble(response) or self._reader.page(response.content)

    def initial(self) -> AsyncGenerator[list[Item], None]:
        """Open a watch that begins with the whole, consistent state (WatchList)."""
        return self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"})

    def watch(self, resource_version: str) -> AsyncGenerator[list[Item], None]:
        """Open a watch of what happens after `resource_version`."""
        return self._stream({"resourceVersion": resource_version})

    async def _stream(self, how: Mapping[str, str]) -> AsyncGenerator[list[Item], None]:
        limit_s = str(random.randint(*WATCH_S))  # noqa: S311 - spread, no secret
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": limit_s, **how}
        # No compression: it would hold small events back until a block is full.
        headers = {"Accept-Encoding": "identity"}
        began = time.monotonic()
        try:
            async with self._watching.stream("GET", self._path, params=params, headers=headers) as response:
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
        except (httpx.RequestError, TransientError) as error:  # also an encoding that is none
            yield [_lost(error)]

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


def _lost(error: Exception) -> Lost:
    return Lost(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": "))
