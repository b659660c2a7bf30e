"""What the contract tests know about the server in front of them, and a small watch client that hides nothing."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}

ISVC = "/apis/serving.kserve.io/v1beta1"
WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
END = "k8s.io/initial-events-end"
PATIENCE_S = 20.0
"""How long a test waits for something that must come."""


@dataclass
class Target:
    """A Kubernetes API server. `limited_token` may get, list, watch and patch InferenceServices, nothing else."""

    url: str
    admin_token: str
    limited_token: str
    is_real: bool
    bookmark_interval_s: float
    restart: Callable[[], None]
    ca_file: str | None = None
    expire_history: Callable[[], None] | None = None

    def client(self, token: str | None = None, **transport: Any) -> httpx.AsyncClient:
        """A client as admin, or with another token; the empty token sends none."""
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else False
        token = self.admin_token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(PATIENCE_S, read=90),
            transport=httpx.AsyncHTTPTransport(verify=verify, **transport),
        )


def isvc(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, **metadata},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/v1"}}},
    }


@dataclass
class Place:
    """The InferenceServices of one namespace, as admin."""

    client: httpx.AsyncClient
    namespace: str

    @property
    def path(self) -> str:
        return f"{ISVC}/namespaces/{self.namespace}/inferenceservices"

    def of(self, name: str) -> str:
        return f"{self.path}/{name}"

    async def create(self, name: str, **metadata: Any) -> dict[str, Any]:
        return await ok(self.client.post(self.path, json=isvc(name, **metadata)))

    async def merge(self, name: str, patch: dict[str, Any], part: str = "") -> dict[str, Any]:
        path = self.of(name) + (f"/{part}" if part else "")
        return await ok(self.client.patch(path, json=patch, headers=MERGE))

    async def label(self, name: str, **labels: str | None) -> dict[str, Any]:
        return await self.merge(name, {"metadata": {"labels": labels}})

    async def get(self, name: str) -> dict[str, Any]:
        return await ok(self.client.get(self.of(name)))

    async def delete(self, name: str, **options: Any) -> dict[str, Any]:
        return await ok(self.client.request("DELETE", self.of(name), json=options))

    async def list_version(self) -> str:
        """The resourceVersion of a list of now."""
        return str((await ok(self.client.get(self.path)))["metadata"]["resourceVersion"])


async def ok(call: Any) -> dict[str, Any]:
    """The body of a successful answer."""
    response = await call
    assert response.is_success, f"{response.status_code}: {response.text[:500]}"
    return response.json()


def version(obj: dict[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Stream:
    """The events of one watch, and the time of its end."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any] | None:
        """The next event, or None at the end of the stream."""
        async with asyncio.timeout(90):
            async for line in self._lines:
                return json.loads(line)
        return None

    async def take(self, number: int) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        while len(events) < number:
            event = await self.next()
            if event is None:
                pytest.fail(f"the stream ended after {len(events)} of {number} events")
            events.append(event)
        return events

    async def rest(self) -> list[dict[str, Any]]:
        """All events until the end."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@asynccontextmanager
async def watch(client: httpx.AsyncClient, path: str, **query: Any) -> AsyncIterator[Stream]:
    async with client.stream("GET", path, params={"watch": "1", **query}) as response:
        if response.status_code != 200:
            await response.aread()
        yield Stream(response)


def summary(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(type, name) of each event."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll an async condition until it is true; its value."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        value = await condition()
        if value:
            return value
        await asyncio.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


async def create_definition(place: Place) -> dict:
    """Define a kind of this test's own."""
    group = f"{place.namespace}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    return await ok(place.client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=body))


def served_path(crd: dict, namespace: str) -> str:
    return f"/apis/{crd['spec']['group']}/v1/namespaces/{namespace}/gadgets"
