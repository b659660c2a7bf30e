"""The namespaces that a label selector chooses (NAMESPACE_SELECTOR), and questions about namespaces.

Listed every half minute, and at once when an object appears in a namespace that was not met before. A watch would tell
a change of labels sooner, and cost a second state machine; nothing is lost by the wait, since a namespace that is
chosen is listed completely.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Annotated, Final, Literal
from urllib.parse import quote

import httpx
import msgspec

from producer.passes import Scope
from producer.watch import RETRY_AFTER_MAX_S, backoff_s
from shared.decoding import UNDECODABLE
from shared.errors import IsvcSyncError, TransientError, UnreachableError
from shared.kubernetes_errors import Answer, raise_for, translated

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 30.0
_PAUSE_S: Final = 1.0  # at least, between two lists
_PAGE_SIZE: Final = 500
_PATH: Final = "/api/v1/namespaces"
# Names are enough: this form of the answer leaves out spec and status.
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class _Metadata(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class _Namespace(msgspec.Struct):
    metadata: _Metadata


class _ListMeta(msgspec.Struct):
    token: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    """A page of the list. Anything else in JSON (a Status with 200, say) does not mean that there are no namespaces."""

    kind: Literal["NamespaceList", "PartialObjectMetadataList"]
    metadata: _ListMeta
    items: tuple[_Namespace, ...] | None  # an empty list of a Go server may be null


class ChosenNamespaces:
    """Keeps the names that `selector` chooses; `on_change` is called when they are others than before."""

    def __init__(self, http: httpx.AsyncClient, selector: str, on_change: Callable[[], None]) -> None:
        self._http = http
        self._selector = selector
        self._on_change = on_change
        self._names: frozenset[str] = frozenset()
        self._known = asyncio.Event()
        self._stir = asyncio.Event()
        self._met: set[str] = set()
        self._trouble = "the namespaces are not listed yet"

    def scope(self) -> Scope:
        return self._names

    def met(self, namespace: str) -> None:
        if namespace not in self._met:
            self._met.add(namespace)
            self._stir.set()

    async def known(self) -> None:
        await self._known.wait()

    def readiness(self) -> str | None:
        """Return None, or why the choice may be out of date. May be called from another thread."""
        return self._trouble or None

    async def run(self) -> None:
        """Keep the names true until cancelled. What cannot be listed stays as it was."""
        failures = 0
        while True:
            try:
                names = await _listed(self._http, self._selector)
            except IsvcSyncError as error:
                failures += 1
                self._note(error)
                await _back_off(failures, error)
            else:
                failures, self._trouble = 0, ""
                self._take(names)
                await self._pause()

    def _note(self, error: IsvcSyncError) -> None:
        if str(error) != self._trouble:  # said once
            logger.warning("the chosen namespaces cannot be listed", extra={"error": str(error)})
        self._trouble = str(error)

    def _take(self, names: frozenset[str]) -> None:
        if self._known.is_set() and names == self._names:
            return
        came, left = sorted(names - self._names), sorted(self._names - names)
        logger.info("namespaces chosen", extra={"count": len(names), "new": came[:20], "left": left[:20]})
        self._names = names
        if self._known.is_set():
            self._on_change()
        self._known.set()

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S - _PAUSE_S):
                await self._stir.wait()
        self._stir.clear()


async def namespace_exists(http: httpx.AsyncClient, name: str) -> bool:
    """Whether a namespace exists. Yes, too, when we may not ask: what is not known to be gone is there.

    Raises an IsvcSyncError when there is no answer.
    """
    what = f"reading the namespace {name}"
    with translated(what):
        response = await http.get(f"{_PATH}/{quote(name, safe='')}")
    if response.status_code == httpx.codes.FORBIDDEN:
        return True
    if response.status_code == httpx.codes.NOT_FOUND:
        answer = Answer.of(response)
        if answer.is_status and answer.reason == "NotFound":
            return False
    raise_for(response, what)  # another 404 is a proxy's, which says nothing
    return True


async def _back_off(failures: int, error: IsvcSyncError) -> None:
    """Pause as a watch does, and at least for as long as the server asks for."""
    asked_s = (error.retry_after_s or 0.0) if isinstance(error, TransientError) else 0.0
    chance = random.random()  # noqa: S311 - spreads load, no secret
    await asyncio.sleep(max(backoff_s(failures, chance), min(asked_s, RETRY_AFTER_MAX_S)))


async def _listed(http: httpx.AsyncClient, selector: str) -> frozenset[str]:
    """Return the names of all namespaces with these labels: from all pages, or from none. Raises IsvcSyncError."""
    what = f"listing the namespaces of NAMESPACE_SELECTOR ({selector})"
    names: set[str] = set()
    followed: set[str] = set()
    token = ""
    while True:
        params = {"labelSelector": selector, "limit": str(_PAGE_SIZE)} | ({"continue": token} if token else {})
        with translated(what):
            response = await http.get(_PATH, params=params, headers={"Accept": _METADATA_ONLY})
        raise_for(response, what)
        try:
            page = msgspec.json.decode(response.content, type=_Page)
        except UNDECODABLE as error:
            raise UnreachableError(f"{what}: the answer is no list of namespaces") from error
        names.update(each.metadata.name for each in page.items or ())
        token = page.metadata.token
        if not token:
            return frozenset(names)
        if token in followed:
            raise UnreachableError(f"{what}: a continue token came twice")
        followed.add(token)
