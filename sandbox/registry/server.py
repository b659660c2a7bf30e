"""Start the sandbox's Model Registry.

    async with sandbox.registry.serve() as server:
        server.seed(registered_models=[{"id": "1", "name": "fraud"}])
        server.faults.set(Fault(path=".*/inference_services", error_rate=0.2))
        server.switch(database="stopped")
        ...  # requests to server.url + "/api/model_registry/v1alpha3/..."
        assert server.faults.injected["error"] and server.requests.total("POST") == 1

The same by HTTP, for other processes: /_sandbox/registry (GET everything, PUT replaces it, POST adds),
/_sandbox/switches (GET, PUT what changes), /_sandbox/faults and /_sandbox/requests (`sandbox.faults`).
"""

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from sandbox import faults
from sandbox import web as sandbox_web
from sandbox.faults import CONTROL_PREFIX, Faults, RequestCounts
from sandbox.registry.api import Api, route_of
from sandbox.registry.like import identity
from sandbox.registry.records import Registry
from sandbox.registry.store import Store
from sandbox.registry.switches import PROFILES, Switches, fold_mysql


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry starts. `seed` is for the faults' generator and the registry's own whims."""

    profile: str = "default"
    """One of PROFILES."""
    case_insensitive: bool = False
    """Compare names as MySQL does; PostgreSQL, the default, is exact."""
    seed: int = 0
    now_ms: Callable[[], int] = clock_ms


class RegistryServer:
    """A running registry: its address, its content, its switches, its counters."""

    def __init__(self, options: Options) -> None:
        if options.profile not in PROFILES:
            raise ValueError(f"no registry profile {options.profile!r}; there are {', '.join(PROFILES)}")
        store = Store(options.now_ms, fold_mysql if options.case_insensitive else identity)
        self.url = ""
        self.registry = Registry(store)
        self.faults = Faults(options.seed)
        self.requests = RequestCounts()
        self._now_ms = options.now_ms
        self._api = Api(store, PROFILES[options.profile], options.now_ms, random.Random(options.seed))

    @property
    def switches(self) -> Switches:
        return self._api.switches

    def switch(self, **changes: Any) -> None:
        """Change switches by name; the others stay. Raises ValueError for a name or value that does not exist."""
        known = msgspec.structs.asdict(self._api.switches)
        self._api.switches = msgspec.convert(msgspec.to_builtins(known | changes), Switches)

    def seed(self, **collections: list[dict[str, Any]]) -> None:
        """Add records with the ids they name (see `Registry.seed`)."""
        self.registry.seed(self._now_ms(), collections)

    def records(self, collection: str | None = None) -> list[dict[str, Any]]:
        return self.registry.records(collection)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=0)  # the real server has no limit either
        faults.install(app, self.faults, self.requests, route_of)
        _add_control(app, self, self._now_ms)
        app.router.add_route("*", "/{path:.*}", self._api.handle)
        return app


@asynccontextmanager
async def serve(
    options: Options | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[RegistryServer]:
    """Serve an empty registry; `port=0` lets the system choose. Raises OSError when the port is taken."""
    server = RegistryServer(options or Options())
    async with sandbox_web.serve(server.app(), host=host, port=port) as url:
        server.url = url
        yield server


def _add_control(app: web.Application, server: RegistryServer, now_ms: Callable[[], int]) -> None:
    async def get_registry(_: web.Request) -> web.Response:
        return web.json_response(server.registry.dump())

    async def add_records(request: web.Request) -> web.Response:
        collections = msgspec.json.decode(await request.read(), type=dict[str, list[dict[str, Any]]])
        put = server.registry.replace if request.method == "PUT" else server.registry.seed
        put(now_ms(), collections)
        return web.json_response(server.registry.dump())

    async def get_switches(_: web.Request) -> web.Response:
        return web.json_response(msgspec.to_builtins(server.switches))

    async def put_switches(request: web.Request) -> web.Response:
        server.switch(**msgspec.json.decode(await request.read(), type=dict[str, Any]))
        return await get_switches(request)

    app.router.add_get(CONTROL_PREFIX + "registry", get_registry)
    app.router.add_put(CONTROL_PREFIX + "registry", _explained(add_records))
    app.router.add_post(CONTROL_PREFIX + "registry", _explained(add_records))
    app.router.add_get(CONTROL_PREFIX + "switches", get_switches)
    app.router.add_put(CONTROL_PREFIX + "switches", _explained(put_switches))


def _explained(handler: Callable[[web.Request], Any]) -> Callable[[web.Request], Any]:
    """Answer 400 with the reason where an order cannot be carried out."""

    async def explained(request: web.Request) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        return response

    return explained
