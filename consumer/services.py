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
from consumer.exchange import Exchanger, Outgoing
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnreachableError
from shared.kubernetes_errors import raise_for

logger = logging.getLogger(__name__)

KEPT_S: Final = 30.0
AGAIN_S: Final = 1.0  # however many objects find nothing, the API is asked no more often than this
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
    """The Services of some namespaces. One reads, however many wait for it."""

    def __init__(self, exchanger: Exchanger, namespaces: Sequence[str]) -> None:
        self._exchanger = exchanger
        self._namespaces = namespaces
        self._services: tuple[Service, ...] = ()
        self._read_at = -math.inf
        self._tried_at = -math.inf
        self._reading = asyncio.Lock()

    async def services(self, *, not_older_than_s: float = KEPT_S) -> tuple[Service, ...]:
        """Return what is known, read anew when it is older; `AGAIN_S` is the least that is kept to.

        When the API does not answer, what was read before goes on to count: records do not wait for the API server.
        Raises TransientError when nothing was ever read.
        """
        if not self._namespaces:
            return ()
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if now - self._read_at >= not_older_than_s and now - self._tried_at >= AGAIN_S:
                self._tried_at = now
                await self._refresh()
            if self._read_at == -math.inf:
                raise TransientError("the Services in REGISTRY_NAMESPACES could not be read yet")
            return self._services

    async def _refresh(self) -> None:
        try:
            found = [service for namespace in self._namespaces for service in await self._list(namespace)]
        except TransientError as error:
            if self._read_at == -math.inf:
                raise
            logger.warning("registries' Services cannot be read, the last ones count", extra={"error": str(error)})
            return
        self._services, self._read_at = tuple(found), self._tried_at

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
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
