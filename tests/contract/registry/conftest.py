"""The registries that the contract is held against: the sandbox always, a real one when MODEL_REGISTRY_URL names it."""

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from sandbox.registry import serve

TARGETS = ["sandbox", *(["real"] if os.environ.get("MODEL_REGISTRY_URL") else [])]


class Target:
    """A registry under its API prefix, and names that no other run uses: a real one is shared, and its rows stay."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self._run = uuid.uuid4().hex[:12]

    def name(self, stem: str) -> str:
        return f"{stem}-{self._run}"

    async def request(self, method: str, path: str, body: Any = None, **params: str) -> httpx.Response:
        return await self.client.request(method, path, json=body, params=params or None)

    async def get(self, path: str, **params: str) -> httpx.Response:
        return await self.request("GET", path, **params)

    async def create(self, collection: str, **fields: Any) -> dict[str, Any]:
        answer = await self.request("POST", f"/{collection}", fields)
        assert answer.status_code == 201, answer.text
        record: dict[str, Any] = answer.json()
        return record

    async def patch(self, collection: str, record_id: str, body: Any) -> httpx.Response:
        return await self.client.patch(f"/{collection}/{record_id}", json=body)

    async def model(self, stem: str = "model") -> str:
        """Return the id of a new registered model."""
        return str((await self.create("registered_models", name=self.name(stem)))["id"])

    async def environment(self, stem: str = "environment") -> str:
        """Return the id of a new serving environment."""
        return str((await self.create("serving_environments", name=self.name(stem)))["id"])

    async def service(self, stem: str = "service", **fields: Any) -> dict[str, Any]:
        """Return a new inference service, in a new environment unless one is given."""
        environment = fields.pop("servingEnvironmentId", None) or await self.environment(f"{stem}-environment")
        return await self.create(
            "inference_services",
            **{"name": stem, "registeredModelId": "1", "servingEnvironmentId": environment, **fields},
        )


@pytest.fixture(params=TARGETS)
async def registry_target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    """A registry to hold to the facts; its API version is v1alpha3 where that is served, else v1."""
    async with AsyncExitStack() as stack:
        if request.param == "real":
            root = os.environ["MODEL_REGISTRY_URL"].rstrip("/")
        else:
            root = (await stack.enter_async_context(serve())).url
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=30, trust_env=False))
        prefix = f"{root}/api/model_registry/v1alpha3"
        if (await client.get(f"{prefix}/registered_models", params={"pageSize": "1"})).status_code != 200:
            prefix = f"{root}/api/model_registry/v1"
        client.base_url = httpx.URL(prefix)
        yield Target(client)
