"""The registry over HTTP: one handler for all paths.

A router's rules would not do: no trailing slash, ids as they were sent, 405 for HEAD, one Allow line per method.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from sandbox.faults import dropped
from sandbox.registry import health
from sandbox.registry.core import Core
from sandbox.registry.errors import ApiError, Panic
from sandbox.registry.kinds import Kind
from sandbox.registry.records import view
from sandbox.registry.routes import Answer, Call, Location, Route, locate
from sandbox.registry.store import Store
from sandbox.registry.switches import Switches, database_fault

_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
_REFUSAL = {**_TEXT, "X-Content-Type-Options": "nosniff"}
_JSON = {"Content-Type": "application/json; charset=UTF-8", "Vary": "Origin"}
_NEVER_REACHED = (
    "Datastore service is down or unavailable. Please check that the database is reachable and try again later.\n"
)
_encode = msgspec.json.Encoder(order="sorted").encode


def route_of(request: web.Request) -> str:
    """Name the route that a request is counted under, without prefix and version."""
    path = request.raw_path.partition("?")[0]
    if path.endswith(health.SUFFIXES):
        return "/readyz"
    location = locate(path)
    return location.route.pattern if location is not None and location.route is not None else "unknown"


class Api:
    """Answers requests from a store, as its switches say."""

    def __init__(self, store: Store, switches: Switches, now_ms: Callable[[], int], generator: random.Random) -> None:
        self.switches = switches
        self._store = store
        self._now_ms = now_ms
        self._choose = generator.choice
        self._in_flight = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, _, raw_query = request.raw_path.partition("?")
        self._in_flight += 1
        try:
            if path.endswith(health.SUFFIXES):
                return self._health(request.method, path, raw_query)
            location = locate(path)
            return self._dated(location, await self._respond(request, location, raw_query))
        except Panic:
            return dropped(request)
        finally:
            self._in_flight -= 1

    async def _respond(self, request: web.Request, location: Location | None, raw_query: str) -> web.Response:
        if refusal := self._gate(request, location):
            return refusal
        assert location is not None
        assert location.route is not None
        try:
            call = Call(location.id, _without_nul(raw_query), await request.read(), self._choose)
            return _json(*await self._run(request.method, location.route, call))
        except ApiError as error:
            return _json(error.status, {"code": error.code, "message": error.message})

    def _gate(self, request: web.Request, location: Location | None) -> web.Response | None:
        """Answer what does not get as far as an operation: proxy, start-up, unknown paths, wrong methods."""
        token = self.switches.require_token
        if token is not None and request.headers.get("Authorization") != f"Bearer {token}":
            return web.Response(status=401, body=b"Unauthorized\n", headers={**_TEXT, "WWW-Authenticate": "Bearer"})
        if self.switches.database == "never_reached":
            return _text(503, _NEVER_REACHED)
        if location is not None and location.version in self.switches.gone:
            return _text(410, "410 this API version is gone\n")
        if location is None or location.route is None or location.version not in self.switches.versions:
            return _text(404, "404 page not found\n")
        if request.method not in location.route.methods:
            return web.Response(status=405, headers=CIMultiDict(("Allow", m) for m in location.route.methods))
        return None

    async def _run(self, method: str, route: Route, call: Call) -> Answer:
        switches = self.switches
        fault = database_fault(switches, self._in_flight)
        if switches.connection_limit is not None and fault is None:
            await asyncio.sleep(switches.statement_s)
        core = Core(self._store, fault, filter_all=switches.filter_all, strict_order=switches.strict_order)
        if method == "PATCH" and route.patches is not None:
            return await self._patch(core, route.patches, call)
        return route.operations[method](core, call)

    async def _patch(self, core: Core, kind: Kind, call: Call) -> Answer:
        body = call.read(kind, "Update")
        row = core.get(kind, call.id)
        await asyncio.sleep(self.switches.merge_pause_s)  # here others come in between, and lose what they write
        return 200, view(core.write(row, body))

    def _health(self, method: str, path: str, raw_query: str) -> web.Response:
        if method != "GET":
            return _text(405, "Method not allowed\n")
        fault = database_fault(self.switches, self._in_flight)
        never = _NEVER_REACHED.strip() if self.switches.database == "never_reached" else None
        complaint = never or health.problem(path, fault)
        status = 200 if complaint is None else 503
        if "format=json" in raw_query.split("&"):
            body = _encode(health.report(path, self._store, self._now_ms(), complaint))
            return web.Response(status=status, body=body, headers={"Content-Type": "application/json"})
        return web.Response(status=status, body=(complaint or "OK").encode(), headers=_TEXT)

    def _dated(self, location: Location | None, response: web.Response) -> web.Response:
        if self.switches.sunset is not None and location is not None and location.version == "v1alpha3":
            response.headers["Deprecation"] = "true"
            response.headers["Sunset"] = self.switches.sunset
        return response


def _without_nul(raw_query: str) -> str:
    if "\0" in raw_query or "%00" in raw_query:
        raise ApiError(400, "Query parameter contains null bytes which are not allowed")
    return raw_query


def _json(status: int, payload: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=_encode(payload) + b"\n", headers=_JSON)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=text.encode(), headers=_REFUSAL)
