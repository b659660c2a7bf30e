"""The cluster's objects as `adopt` and `leave` read them: complete, consistent lists, page by page.

For the person who runs the command, with that person's rights: daemons list nothing but what they are about.
"""

import contextlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol
from urllib.parse import quote

import httpx
import msgspec

from consumer.freshness import Freshness
from consumer.lookup import Lookup
from consumer.observation import Observation
from shared.decoding import UNDECODABLE
from shared.errors import (
    BadEventError,
    ConflictError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnreachableError,
)
from shared.kubernetes_errors import raise_for, translated
from shared.logs import redact
from shared.naming import NamingSettings
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.reduce import digest_of, reduce_object

PAGE_SIZE: Final = 500
LISTS_MAX: Final = 3  # a list that takes longer than the server keeps its version begins anew


class Live(msgspec.Struct, frozen=True):
    """A living object. `finalizers` in their order; `obj` is its reduced form, `digest` that form's."""

    key: ObjectKey
    uid: str
    finalizers: tuple[str, ...]
    obj: ReducedObject
    digest: str

    @property
    def going(self) -> bool:
        """Whether it has been deleted and waits for its finalizers."""
        return self.obj.metadata.deletion_timestamp != ""

    @property
    def seen(self) -> Observation:
        """What it shows, without what only events know."""
        freshness = Freshness(0, self.obj.metadata.resource_version, self.going)
        return Observation(self.key, self.uid, freshness, self.digest, (), "", self.obj)

    def seen_after(self, last: Observation) -> Observation:
        """Return what it shows now; epoch and models are those of its last event."""
        freshness = Freshness(last.freshness.epoch, self.obj.metadata.resource_version, self.going)
        return msgspec.structs.replace(last, freshness=freshness, digest=self.digest, obj=self.obj, passed=())


class Registries(Protocol):
    """The part of `consumer/registries.py` that is needed here."""

    async def choose(self, seen: Observation) -> Lookup: ...


async def name_registries(registries: Registries, objects: Iterable[Live]) -> None:
    """Let the registries that only objects name be known, too; one that is not allowed or not there stays unknown."""
    for live in objects:
        with contextlib.suppress(TransientError, PermanentError):
            await registries.choose(live.seen)


class _ListMetadata(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct):
    kind: str
    items: list[dict[str, Any]] | None = None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class Objects:
    """Lists of one cluster. Everything raises TransientError and PermanentError; `http` takes the API's paths."""

    def __init__(self, http: httpx.AsyncClient, naming: NamingSettings) -> None:
        self._http = http
        self._naming = naming
        self._at = f"at {redact(str(http.base_url)).rstrip('/')}"

    async def of(self, kind: Kind) -> list[Live]:
        """Return all objects of a kind. Raises NotFoundError where the kind is not installed."""
        return [
            self.live(raw, kind) for raw in await self._all(f"/apis/{self._naming.api_version(kind)}/{kind.plural}")
        ]

    async def namespaces(self) -> frozenset[str]:
        return frozenset(raw["metadata"]["name"] for raw in await self._all("/api/v1/namespaces"))

    async def deployments(self, namespace: str = "") -> list[dict[str, Any]]:
        """Return the Deployments of a namespace, or of all."""
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        try:
            return await self._all(f"/apis/apps/v1{scope}/deployments")
        except NotFoundError:
            return []  # an API server that knows no Deployments has none

    async def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Return what a ConfigMap holds, nothing where it is not there."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        what = f"reading ConfigMap {namespace}/{name} {self._at}"
        with translated(what):
            response = await self._http.get(path)
        try:
            raise_for(response, what)
        except NotFoundError:
            return {}
        try:
            return msgspec.json.decode(response.content, type=_ConfigMap).data or {}
        except UNDECODABLE as error:
            raise UnreachableError(f"{what}: the answer is no ConfigMap ({error})") from error

    def live(self, raw: dict[str, Any], kind: Kind) -> Live:
        """Read an object as the API server sends it. Raises UnreachableError for what is none."""
        told = {"apiVersion": self._naming.api_version(kind), "kind": kind.kubernetes_kind}
        prefixes = self._naming.prefixes
        try:
            reduced = reduce_object({**told, **raw}, prefixes)
            obj = msgspec.convert(reduced, ReducedObject)
        except (BadEventError, msgspec.ValidationError) as error:
            raise UnreachableError(f"listing {kind.plural}: the answer holds what is no object ({error})") from error
        metadata = obj.metadata
        finalizers = raw["metadata"].get("finalizers") or ()
        key = ObjectKey(kind, metadata.namespace, metadata.name)
        return Live(key, metadata.uid, tuple(map(str, finalizers)), obj, digest_of(reduced, prefixes))

    async def _all(self, path: str) -> list[dict[str, Any]]:
        """Return a consistent list, made anew when its pages have grown too old (410)."""
        for _ in range(LISTS_MAX):
            try:
                async with aclosing(self._pages(path)) as pages:
                    return [item async for page in pages for item in page]
            except ConflictError as error:
                expired = error
        raise TransientError(str(expired)) from expired

    async def _pages(self, path: str) -> AsyncGenerator[list[dict[str, Any]], None]:
        params = {"limit": str(PAGE_SIZE)}
        while True:
            what = f"listing {path.rpartition('/')[2]} {self._at}"
            with translated(what):
                response = await self._http.get(path, params=params)
            raise_for(response, what)
            try:
                page = msgspec.json.decode(response.content, type=_List)
            except UNDECODABLE as error:
                raise UnreachableError(f"{what}: the answer is no list ({error})") from error
            if not page.kind.endswith("List"):
                raise UnreachableError(f"{what}: the answer is {page.kind[:40]!r}, no list")
            yield page.items or []
            if not page.metadata.token:
                return
            params = {"limit": str(PAGE_SIZE), "continue": page.metadata.token}
