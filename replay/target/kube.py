"""A cluster as the target of a replay: writes what the events say, and nothing that does not bear the replay's mark.

`cluster.py` says what to do. Each write names the uid that it is about, so that an object which somebody has put in the
place of ours meanwhile is refused by the server, and not changed.
"""

import asyncio
import logging
from typing import Any, Final

import httpx
import msgspec

from replay.capture import Captured, Facts
from replay.target.choice import Guise
from replay.target.cluster import (
    MARK,
    Operation,
    Place,
    Remove,
    Showing,
    created,
    held_of,
    is_ours,
    patches,
)
from shared.decoding import UNDECODABLE
from shared.errors import (
    BadEventError,
    ConflictError,
    IsvcSyncError,
    NotFoundError,
    PermanentError,
    RefusedToStartError,
    TransientError,
    UnreachableError,
)
from shared.kubernetes_errors import raise_for, translated

logger = logging.getLogger(__name__)

_NAMESPACES: Final = "/api/v1/namespaces"
_MERGE_PATCH: Final = "application/merge-patch+json"
_POLL_S: Final = 0.1


class Tally(msgspec.Struct):
    """What was done. `changed`: writes to objects that were there. `troubles`: why an object is not as captured.

    Objects are `<kind>/<namespace>/<name>`, with the replay's namespace.
    """

    created: int = 0
    changed: int = 0
    deleted: int = 0
    troubles: dict[str, str] = {}


class _Held(msgspec.Struct, frozen=True):
    """An object of ours: the server's uid, and what it says as far as we wrote it."""

    uid: str
    body: dict[str, Any]


class KubeApi:
    """The requests. Methods raise what `raise_for` and `translated` say."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return an object or a list, None where there is none."""
        try:
            return await self._ask("GET", path)
        except NotFoundError:
            return None

    async def create(self, collection: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._ask("POST", collection, body)

    async def patch(self, path: str, uid: str, patch: dict[str, Any]) -> None:
        guarded = patch | {"metadata": patch.get("metadata", {}) | {"uid": uid}}
        await self._ask("PATCH", path, guarded, _MERGE_PATCH)

    async def delete(self, path: str, uid: str) -> None:
        """Delete the object of that uid. One that is not there any more is fine."""
        try:
            await self._ask("DELETE", path, {"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
        except NotFoundError:
            logger.info("somebody was faster", extra={"path": path})

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, media: str = "application/json"
    ) -> dict[str, Any]:
        what = f"{method} {path}"
        content = None if body is None else msgspec.json.encode(body)
        with translated(what):
            response = await self._http.request(method, path, content=content, headers={"Content-Type": media})
        raise_for(response, what)
        try:
            return msgspec.json.decode(response.content, type=dict[str, Any])
        except UNDECODABLE as error:
            raise UnreachableError(f"{what}: the answer does not decode ({error})") from error


class ClusterStage:
    """Implements `play.Stage`. `wait_s`: how long an object of ours may take to go before it is created anew.

    `unreadable`: events that say nothing which a cluster could show.
    """

    def __init__(self, api: KubeApi, guise: Guise, wait_s: float) -> None:
        self._api = api
        self._guise = guise
        self._wait_s = wait_s
        self._showing = Showing(guise)
        self._held: dict[Place, _Held] = {}
        self._collections: dict[str, set[str]] = {}  # by namespace
        self.tally = Tally()
        self.unreadable = 0

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted(self._collections))

    async def facts(self, facts: Facts) -> None:
        """Learn nothing: a cluster has no registry's records."""

    async def event(self, captured: Captured) -> None:
        """Let an event happen. Raises TransientError when the API does not answer, or lets us do nothing."""
        try:
            operations = self._showing.operations(captured)
        except BadEventError as error:
            logger.warning("an event cannot be replayed", extra={"seq": captured.position.seq, "reason": str(error)})
            self.unreadable += 1
            return
        for operation in operations:
            try:
                await self._do(operation)
            except (ConflictError, NotFoundError, PermanentError) as error:
                self._trouble(operation.place, str(error))
                if not isinstance(error, PermanentError):
                    self._held.pop(operation.place, None)  # looked at again with the next event

    async def _do(self, operation: Operation) -> None:
        place = operation.place
        if isinstance(operation, Remove):
            held = self._held.pop(place, None)
            if uid := await self._uid_of_ours(place) if held is None else held.uid:
                await self._api.delete(place.path, uid)
                self.tally.deleted += 1
            return
        is_new = place not in self._held and await self._begin(place, operation.body)
        if place not in self._held:
            self._trouble(place, "an object of that name is there, and was not made by this replay: not touched")
            return
        has_changed = await self._change(place, operation.body)
        self.tally.changed += has_changed and not is_new  # the first status belongs to the creation

    async def _uid_of_ours(self, place: Place) -> str:
        """Return the uid of what stands there, "" unless it is ours: for what a refused write has let us forget."""
        live = await self._api.get(place.path)
        return str(live["metadata"]["uid"]) if live is not None and is_ours(live, self._guise) else ""

    def _trouble(self, place: Place, reason: str) -> None:
        self.tally.troubles.setdefault(str(place.key), reason)

    async def _enter(self, namespace: str, collection: str) -> None:
        """Make the namespace unless it is there. Raises RefusedToStartError while an earlier one is still going."""
        if namespace in self._collections:
            self._collections[namespace].add(collection)
            return
        live = await self._api.get(f"{_NAMESPACES}/{namespace}")
        self._collections[namespace] = {collection}  # from here on something may have been made
        if live is None:
            metadata = {"name": namespace, "annotations": {MARK: self._guise.name}}
            await self._api.create(_NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        elif live["metadata"].get("deletionTimestamp"):
            raise RefusedToStartError(
                f"The namespace {namespace} of an earlier replay is still being removed: wait, or give another --name."
            )

    async def _begin(self, place: Place, body: dict[str, Any]) -> bool:
        """Create the object, and return whether that was done. One that an earlier replay of that name left is taken.

        After it the object is held, unless it is somebody else's.
        """
        await self._enter(place.key.namespace, place.collection)
        live = await self._present(place)
        if live is None:
            made = await self._api.create(place.collection, created(place, body))
            self._held[place] = _Held(made["metadata"]["uid"], body | {"status": {}})
            self.tally.created += 1
            return True
        if is_ours(live, self._guise):
            self._held[place] = _Held(live["metadata"]["uid"], held_of(live))
        return False

    async def _present(self, place: Place) -> dict[str, Any] | None:
        """Return the object that is there; one of ours that is going is waited for."""
        live = await self._api.get(place.path)
        try:
            async with asyncio.timeout(self._wait_s):
                while live is not None and is_ours(live, self._guise) and live["metadata"].get("deletionTimestamp"):
                    await asyncio.sleep(_POLL_S)
                    live = await self._api.get(place.path)
        except TimeoutError as error:
            raise UnreachableError(
                f"After {self._wait_s:g} s {place.key} is still being deleted: see who holds its finalizers."
            ) from error
        return live

    async def _change(self, place: Place, body: dict[str, Any]) -> bool:
        """Bring the object to what it should say, first itself, then its status; return whether that took anything."""
        held = self._held[place]
        wanted = patches(held.body, body)
        if wanted.main:
            await self._api.patch(place.path, held.uid, wanted.main)
            self._held[place] = held = _Held(held.uid, body | {"status": held.body["status"]})
        if wanted.status:
            await self._api.patch(f"{place.path}/status", held.uid, wanted.status)
            self._held[place] = _Held(held.uid, body)
        return bool(wanted.main or wanted.status)

    async def remove(self) -> None:
        """Remove what bears the mark, and the namespaces that do, unless somebody else has put objects there.

        Raises TransientError when that fails somewhere; everywhere else it is done all the same.
        """
        left: dict[str, str] = {}
        for namespace in sorted(self._collections):
            try:
                await self._clear(namespace)
            except IsvcSyncError as error:
                left[namespace] = str(error)
        if left:
            reason = next(iter(left.values()))
            raise TransientError(
                f"What was made may still be in {', '.join(left)}, with the annotation {MARK}: {self._guise.name} "
                f"({reason})."
            )

    async def _clear(self, namespace: str) -> None:
        is_shared = False
        for collection in sorted(self._collections[namespace]):
            for live in (await self._api.get(collection) or {}).get("items") or []:
                if is_ours(live, self._guise):
                    await self._api.delete(f"{collection}/{live['metadata']['name']}", live["metadata"]["uid"])
                else:
                    is_shared = True
        home = await self._api.get(f"{_NAMESPACES}/{namespace}")
        if home is not None and is_ours(home, self._guise) and not is_shared:
            await self._api.delete(f"{_NAMESPACES}/{namespace}", home["metadata"]["uid"])
