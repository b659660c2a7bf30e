"""Somebody who keeps changing InferenceServices and LLMInferenceServices, whatever happens to the API server.

A fixed set of names in two namespaces: labels and statuses change, objects are deleted and their names taken again, at
once or later. Few names are without an object at any time, so that no list looks like a mass delete.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from shared.objects import Kind, ObjectKey
from tests.cluster.control_plane import ControlPlane
from tests.cluster.remote_kserve import API_VERSIONS
from tests.eventually import eventually

NAMESPACES = ("chaos-a", "chaos-b")
NAMES_PER_NAMESPACE = 20  # of each kind
AWAY_MAX = 4  # names of a kind that have no object on purpose: 10 %, and the producer's guard begins at 20 %
PER_SECOND = 20.0
_PREFIX = "modelregistry.kubeflow.org/"
_TIMEOUT_S = 2.0  # a paused server holds up the writer no longer
_POPULATE_S = 60.0  # for all objects at once, the first of their kinds, on a server that may just have been started
_MERGE = {"Content-Type": "application/merge-patch+json"}


def path_of(key: ObjectKey) -> str:
    return f"/apis/{API_VERSIONS[key.kind]}/namespaces/{key.namespace}/{key.kind.plural}/{key.name}"


class Writer:
    """Changes objects at random. `accepted` and `refused` count the answers: by verb, and by status or exception."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        headers = {"Authorization": f"Bearer {plane.admin_token}"}
        self._api = httpx.AsyncClient(
            base_url=plane.url, headers=headers, verify=plane.ssl_context(), timeout=_TIMEOUT_S, trust_env=False
        )
        self._random = random.Random(seed)
        self._keys = [
            ObjectKey(kind, namespace, f"m{number}")
            for kind in Kind
            for namespace in NAMESPACES
            for number in range(NAMES_PER_NAMESPACE)
        ]
        self._away = set(self._keys)
        self._numbers = iter(range(1_000_000_000))
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    async def close(self) -> None:
        await self._api.aclose()

    async def populate(self) -> None:
        await asyncio.gather(*(self._create(key, _POPULATE_S) for key in self._keys))
        assert not self._away, f"not everything could be created: {self.refused}"

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write for the length of the block."""
        task = asyncio.create_task(self._write(), name="writer")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def accepts(self, changes: int, within_s: float = 30.0) -> None:
        """Wait until so many more changes were accepted."""
        wanted = self.accepted.total() + changes
        await eventually(lambda: self.accepted.total() >= wanted, f"{changes} more changes", within_s)

    async def burst(self, changes: int) -> None:
        """Make so many changes as fast as they are accepted."""
        wanted = self.accepted.total() + changes
        while self.accepted.total() < wanted:
            await self._turn()

    async def _write(self) -> None:
        while True:
            await self._turn()
            await asyncio.sleep(self._random.expovariate(PER_SECOND))

    async def _turn(self) -> None:
        key = self._random.choice(self._keys)
        away = sorted(other for other in self._away if other.kind is key.kind)
        if key in self._away or len(away) >= AWAY_MAX:
            await self._create(self._random.choice(away))
            return
        match self._random.choices(("label", "status", "delete", "replace"), (10, 6, 2, 2))[0]:
            case "label":
                label = {f"{_PREFIX}model-version-id": str(next(self._numbers))}
                await self._patch("label", key, path_of(key), {"metadata": {"labels": label}})
            case "status":
                ready = self._random.choice(("True", "False"))
                status = {"url": f"http://{key.name}-{next(self._numbers)}.example", "conditions": _ready(ready)}
                await self._patch("status", key, f"{path_of(key)}/status", {"status": status})
            case "delete":
                await self._delete(key)
            case _:
                if await self._delete(key):
                    await self._create(key)

    async def _create(self, key: ObjectKey, timeout_s: float = _TIMEOUT_S) -> None:
        metadata = {"namespace": key.namespace, "name": key.name}
        labels = {f"{_PREFIX}registered-model-id": str(self._random.randint(1, 9))}
        body = {
            "apiVersion": API_VERSIONS[key.kind],
            "kind": key.kind.kubernetes_kind,
            "metadata": {**metadata, "labels": labels},
            "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/iris"}}},
        }
        collection = path_of(key).rpartition("/")[0]
        answer = await self._ask("create", "POST", collection, json=body, timeout=timeout_s)
        if answer in {201, 409}:  # 409: an earlier request was carried out although nobody answered it
            self._away.discard(key)

    async def _patch(self, verb: str, key: ObjectKey, path: str, body: dict[str, Any]) -> None:
        if await self._ask(verb, "PATCH", path, json=body, headers=_MERGE) == 404:
            self._away.add(key)

    async def _delete(self, key: ObjectKey) -> bool:
        gone = await self._ask("delete", "DELETE", path_of(key)) in {200, 404}
        if gone:
            self._away.add(key)
        return gone

    async def _ask(self, verb: str, method: str, path: str, **how: Any) -> int:
        """Return the status of the answer, 0 without one."""
        try:
            answer = await self._api.request(method, path, **how)
        except httpx.TransportError as error:
            self.refused[type(error).__name__] += 1
            return 0
        if answer.is_success:
            self.accepted[verb] += 1
        else:
            self.refused[str(answer.status_code)] += 1
        return answer.status_code


def _ready(status: str) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
