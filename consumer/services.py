"""The Services in which registries may be found, read from the Kubernetes API and kept for half a minute.

All Services of each namespace in REGISTRY_NAMESPACES, labelled or not: an object may name one. Only what leads to a
registry is kept of each.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from consumer.discovery import COMPONENT_LABEL, EXTERNAL_ADDRESSES, Service
from consumer.requests.exchange import Exchanger, Outgoing
from shared.decoding import UNDECODABLE
from shared.errors import ConflictError, NotFoundError, NotSentError, PermanentError, TransientError, UnreachableError
from shared.kubernetes_errors import raise_for
from shared.running import ended

logger = logging.getLogger(__name__)

KEPT_S: Final = 30.0
AGAIN_S: Final = 1.0  # however many objects find nothing, the API is asked no more often than this
PATIENCE_S: Final = 1.0  # with a list, by those who could go on with the last one
PAGE_SIZE: Final = 500

_COLLECTION: Final = "/api/v1/namespaces/{}/services"


class _Port(msgspec.Struct, frozen=True):
    port: int
    name: str = ""


class _Spec(msgspec.Struct, frozen=True):
    ports: tuple[_Port, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Item(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _ListMetadata(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _Page(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] | None
    metadata: _ListMetadata = _ListMetadata()


class ServiceCatalog:
    """The Services of some namespaces. One reads, in a task of its own, however many wait for it.

    An API server that hangs stops nobody who could go on: once a list has failed, what was read before is handed out at
    once, until one succeeds.
    """

    def __init__(self, exchanger: Exchanger, namespaces: Sequence[str]) -> None:
        self._exchanger = exchanger
        self._namespaces = namespaces
        self._services: tuple[Service, ...] = ()
        self._read_at = self._began_at = self._again_at = -math.inf
        self._failure = ""  # of the last try, "" when it succeeded
        self._reading: asyncio.Task[None] | None = None

    async def services(self, *, not_older_than_s: float = KEPT_S) -> tuple[Service, ...]:
        """Return what is known, read anew when it is older; `AGAIN_S` is the least that is kept to.

        When the API does not answer, what was read before goes on to count: records do not wait for the API server.
        Raises TransientError when nothing was ever read: NotSentError, so that it is asked for again soon.
        """
        if not self._namespaces:
            return ()
        now = _now()
        is_old = now - self._read_at >= not_older_than_s
        if is_old and self._reading is None and now >= self._again_at:
            self._begin()
        if is_old and self._reading is not None:
            await self._wait_for(self._reading)
        if self._read_at == -math.inf:
            reason = self._failure or "no answer yet"
            raise NotSentError(
                f"the Services in REGISTRY_NAMESPACES could not be read yet: {reason}", retry_after_s=AGAIN_S
            )
        return self._services

    async def close(self) -> None:
        """End what is being read."""
        if self._reading is not None:
            await ended(self._reading)

    async def _wait_for(self, reading: asyncio.Task[None]) -> None:
        """Wait for a list: to its end where nothing is known, else for a moment, and not for one that may well hang."""
        if self._read_at == -math.inf:
            await asyncio.wait([reading])
        elif not self._failure:
            await asyncio.wait([reading], timeout=max(0.0, self._began_at + PATIENCE_S - _now()))

    def _begin(self) -> None:
        self._began_at = _now()
        self._again_at = self._began_at + AGAIN_S
        self._reading = asyncio.create_task(self._read(), name="reading Services")
        self._reading.add_done_callback(self._end)

    async def _read(self) -> None:
        found = [service for namespace in self._namespaces for service in await self._list(namespace)]
        self._services, self._read_at = tuple(found), self._began_at

    def _end(self, reading: asyncio.Task[None]) -> None:
        """Note how a list ended. Said once when it begins to fail, and once when it is well again."""
        self._reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            if self._failure:
                logger.info("registries' Services can be read again")
            self._failure = ""
            return
        if not self._failure:
            then = "what needs them is held" if self._read_at == -math.inf else "the last ones count"
            fault = None if isinstance(error, TransientError) else error
            extra = {"error": str(error)}
            logger.error("registries' Services cannot be read, %s", then, extra=extra, exc_info=fault)
        self._failure = str(error) or type(error).__name__
        self._again_at = _now() + AGAIN_S  # from its end: a list that hangs takes longer than the pause

    async def _list(self, namespace: str) -> list[Service]:
        found: list[Service] = []
        params = {"limit": str(PAGE_SIZE)}
        while True:
            page = await self._page(namespace, params)
            found += map(_service, page.items or ())
            if not page.metadata.next:
                return found
            params = {"limit": str(PAGE_SIZE), "continue": page.metadata.next}

    async def _page(self, namespace: str, params: dict[str, str]) -> _Page:
        what = f"listing Services in namespace {namespace}"
        request = Outgoing(
            method="GET",
            path=_COLLECTION.format(quote(namespace, safe="")),
            route=_COLLECTION.format("{namespace}"),
            params=params,
        )
        response = await self._exchanger.send(request, lambda: math.inf)  # reading is no effect: it needs no shard
        try:
            raise_for(response, what)
            return msgspec.json.decode(response.content, type=_Page)
        except UNDECODABLE as error:
            raise UnreachableError(f"{what}: the answer does not decode ({error})") from error
        except (ConflictError, NotFoundError, PermanentError) as error:
            raise TransientError(str(error)) from error  # never an object's fault; 410: a page token grew old


def _service(item: _Item) -> Service:
    labels, annotations = item.metadata.labels or {}, item.metadata.annotations or {}
    return Service(
        item.metadata.namespace,
        item.metadata.name,
        labels={key: value for key, value in labels.items() if key == COMPONENT_LABEL[0]},
        annotations={key: value for key, value in annotations.items() if key in EXTERNAL_ADDRESSES},
        ports={each.name: each.port for each in item.spec.ports or ()},
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
