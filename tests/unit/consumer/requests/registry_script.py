"""A registry of scripted answers behind httpx's mock transport: exact bytes in, exact requests seen."""

import json
from collections.abc import Callable
from typing import Any

import httpx
from opentelemetry.trace import NoOpTracer

from consumer.actions import CreateRecord
from consumer.registry import ModelRegistry
from consumer.requests.exchange import Instruments
from consumer.requests.registry_client import InFlightLimit, RegistryAccess, RegistryClient
from consumer.requests.registry_errors import Request, RequestKind

BASE = "http://registry.example:8080"
ANY_VERSION = RegistryAccess(base_url=BASE)
ASK = Request(RequestKind.FIND, "GET", "/inference_service", {"externalId": "x"})
FOUND = {"id": "17", "externalId": "x"}
JSON = {"Content-Type": "application/json; charset=UTF-8"}
TEXT = {"Content-Type": "text/plain; charset=utf-8"}
UNAVAILABLE = httpx.Response(503, headers=TEXT, text="Datastore service is down or unavailable.\n")
NO_PAGE = httpx.Response(404, headers=TEXT, text="404 page not found\n")
EMPTY_PAGE: dict[str, Any] = {"items": [], "nextPageToken": "", "pageSize": 1, "size": 0}
ROOT = "/api/model_registry/"
URL = {"metadataType": "MetadataStringValue", "string_value": "http://iris.example"}

Reply = httpx.Response | Exception


def plenty() -> float:
    return 60.0


def ok(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, headers=JSON, content=json.dumps(body))


def error(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, headers=JSON, content=json.dumps({"code": "any text", "message": message}))


def creation(**changes: Any) -> CreateRecord:
    """Return what makes a record of an object that is deployed."""
    fields = {
        "environment": "team-a",
        "name": "iris/5a1e",
        "external_id": "kserve:5a1e/1",
        "model_id": "1",
        "version_id": "4",
        "runtime": "sklearn",
        "deployed": True,
        "properties": {"url": URL},
        "reason": "new",
    }
    return CreateRecord(**(fields | changes))


class Script:
    """Answers in the order given, each once; `seen` are the requests as they arrived."""

    def __init__(self, *replies: Reply | Callable[[httpx.Request], Reply]) -> None:
        self.replies = list(replies)
        self.seen: list[httpx.Request] = []
        self.exchanges: list[tuple[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        assert self.replies, f"nothing is scripted for {request.method} {request.url}"
        reply = self.replies.pop(0)
        if callable(reply) and not isinstance(reply, httpx.Response):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def client(self, access: RegistryAccess | None = None, limit: InFlightLimit | None = None) -> RegistryClient:
        access = access or RegistryAccess(base_url=BASE, api_version="v1alpha3")
        instruments = Instruments(NoOpTracer(), lambda method, code, _: self.exchanges.append((method, code)))
        client = RegistryClient(access, limit or InFlightLimit(4), instruments)
        client._http._transport = httpx.MockTransport(self)
        return client

    def registry(self, access: RegistryAccess | None = None) -> ModelRegistry:
        return ModelRegistry(self.client(access), plenty)

    def paths(self) -> list[str]:
        return [f"{request.method} {request.url.path.removeprefix(ROOT)}" for request in self.seen]
