"""Fault switches for the sandbox's HTTP servers: what goes wrong, for which requests, as data.

Stands in front of every handler as an aiohttp middleware. `Faults.decide` is pure but for its seeded generator and its
counters; `install` binds it to an application and adds the control routes, which no fault touches:

    GET    /_sandbox/faults    what is set, and what was injected so far
    PUT    /_sandbox/faults    {"seed": 7, "faults": [{"path": ".*/inference_services", "error_rate": 0.2}]}
    DELETE /_sandbox/faults    all well again; hanging requests are dropped
    GET    /_sandbox/requests  requests counted per method and route; DELETE sets them to zero
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

CONTROL_PREFIX = "/_sandbox/"

Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Ending = Literal["answer", "error", "outage", "hang", "drop", "lost_reply"]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One switch. `method` and `path` are regular expressions that must match completely (path without the query).

    Several switches may be set: delays add up, and the first one that ends the request wins.
    """

    method: str = ".*"
    path: str = ".*"
    next_requests: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Good for so many matching requests, then spent; None: until it is taken away."""

    latency_s: Seconds = 0.0
    outage: bool = False
    """Every request is answered 503."""
    hang: bool = False
    """Accepted and never answered; the connection is dropped when the faults are cleared or the server stops."""
    drop_rate: Rate = 0.0
    """Closed without an answer, before any work."""
    error_rate: Rate = 0.0
    error_status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 500
    error_body: str = "injected fault"
    error_headers: dict[str, str] = {}
    """Added to, or instead of, `Content-Type: text/plain; charset=utf-8`, which proxies answer."""
    lost_reply_rate: Rate = 0.0
    """The work is done, then the connection is closed without an answer."""
    cut_after_s: Seconds | None = None
    """The connection is closed after this time although the answer is not complete: breaks a watch in its middle."""


class Injection(msgspec.Struct, frozen=True):
    """What one request meets. `fault` is the switch that ends it, if one does."""

    latency_s: float = 0.0
    cut_after_s: float | None = None
    ending: Ending = "answer"
    fault: Fault | None = None


WELL = Injection()


class _Switch:
    """A fault with its compiled patterns and what is left of it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.method = _compiled(fault.method, "method")
        self.path = _compiled(fault.path, "path")
        self.left = fault.next_requests

    def takes(self, method: str, path: str) -> bool:
        if self.left == 0 or not self.method.fullmatch(method) or not self.path.fullmatch(path):
            return False
        if self.left is not None:
            self.left -= 1
        return True


def _compiled(pattern: str, field: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"fault {field} {pattern!r} is no regular expression: {error}") from error


class Faults:
    """The switches of one server, the generator behind their rates, and the count of what they did."""

    def __init__(self, seed: int = 0) -> None:
        self.injected: Counter[str] = Counter()
        """Injected so far, by kind: latency, cut, and the endings other than `answer`; tests assert on it."""
        self._switches: list[_Switch] = []
        self._random = random.Random(seed)
        self._released = asyncio.Event()

    def set(self, *faults: Fault, seed: int | None = None) -> None:
        """Replace all switches; a seed restarts the generator. The counts stay. Raises ValueError for a bad pattern."""
        switches = [_Switch(fault) for fault in faults]
        self.clear()
        self._switches = switches
        if seed is not None:
            self._random.seed(seed)

    def clear(self) -> None:
        self._switches = []
        self._released.set()  # what hangs now goes; what hangs later waits for the next event
        self._released = asyncio.Event()

    def decide(self, method: str, path: str) -> Injection:
        """Say what this request meets. Draws from the generator only for switches that match and have a rate."""
        if not self._switches:
            return WELL
        latency_s, cut_after_s = 0.0, None
        for switch in self._switches:
            if not switch.takes(method, path):
                continue
            fault = switch.fault
            latency_s += fault.latency_s
            cut_after_s = fault.cut_after_s if cut_after_s is None else cut_after_s
            ending = self._ending(fault)
            if ending != "answer":
                return Injection(latency_s, cut_after_s, ending, fault)
        return Injection(latency_s, cut_after_s)

    def _ending(self, fault: Fault) -> Ending:
        if fault.outage:
            return "outage"
        if fault.hang:
            return "hang"
        if self._happens(fault.drop_rate):
            return "drop"
        if self._happens(fault.error_rate):
            return "error"
        if self._happens(fault.lost_reply_rate):
            return "lost_reply"
        return "answer"

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._random.random() < rate

    async def released(self) -> None:
        """Wait until the switches that are set now are taken away."""
        await self._released.wait()

    def state(self) -> dict[str, Any]:
        """Return what `GET /_sandbox/faults` answers."""
        return {
            "faults": [msgspec.to_builtins(switch.fault) | {"left": switch.left} for switch in self._switches],
            "injected": dict(self.injected),
        }


class RequestCounts:
    """Requests that arrived, faulty ones included, per method and route; control requests are not counted."""

    def __init__(self) -> None:
        self.by_route: Counter[tuple[str, str]] = Counter()

    def add(self, method: str, route: str) -> None:
        self.by_route[method, route] += 1

    def total(self, method: str = ".*", route: str = ".*") -> int:
        """How many requests whose method and route match these regular expressions completely."""
        return sum(
            count
            for (seen_method, seen_route), count in self.by_route.items()
            if re.fullmatch(method, seen_method) and re.fullmatch(route, seen_route)
        )

    def reset(self) -> None:
        self.by_route.clear()

    def state(self) -> dict[str, Any]:
        """Return what `GET /_sandbox/requests` answers."""
        routes = [{"method": m, "route": r, "count": count} for (m, r), count in sorted(self.by_route.items())]
        return {"total": self.by_route.total(), "routes": routes}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RouteOf = Callable[[web.Request], str]


def install(app: web.Application, faults: Faults, requests: RequestCounts, route_of: RouteOf) -> None:
    """Put the switches in front of every handler of `app` and add the control routes.

    `route_of` names the route that a request is counted under, such as `/registered_models/{id}`.
    """

    @web.middleware
    async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(CONTROL_PREFIX):
            return await handler(request)
        requests.add(request.method, route_of(request))
        injection = faults.decide(request.method, request.path)
        return await handler(request) if injection is WELL else await _suffer(request, handler, faults, injection)

    app.middlewares.append(inject)
    _add_control(app, faults, requests)


async def _suffer(request: web.Request, handler: Handler, faults: Faults, injection: Injection) -> web.StreamResponse:
    if injection.latency_s:
        faults.injected["latency"] += 1
        await asyncio.sleep(injection.latency_s)
    if injection.ending != "answer":
        faults.injected[injection.ending] += 1
    match injection.ending, injection.fault:
        case "outage", _:
            return web.Response(status=503, text="injected outage")
        case "hang", _:
            await faults.released()
            return dropped(request)
        case "drop", _:
            return dropped(request)
        case "error", Fault() as fault:
            headers = {"Content-Type": "text/plain; charset=utf-8"} | fault.error_headers
            return web.Response(status=fault.error_status, body=fault.error_body.encode(), headers=headers)
        case "lost_reply", _:
            await handler(request)
            return dropped(request)
        case _:
            return await _perhaps_cut(request, handler, faults, injection.cut_after_s)


async def _perhaps_cut(
    request: web.Request, handler: Handler, faults: Faults, cut_after_s: float | None
) -> web.StreamResponse:
    if cut_after_s is None:
        return await handler(request)

    def cut() -> None:
        faults.injected["cut"] += 1
        dropped(request)

    timer = asyncio.get_running_loop().call_later(cut_after_s, cut)
    try:
        return await handler(request)
    finally:
        timer.cancel()  # a kept-alive connection serves the next request, which is not ours to cut


def dropped(request: web.Request) -> web.Response:
    """Close the connection at once, unsent bytes included; the response is for aiohttp and reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


class _Order(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /_sandbox/faults`."""

    faults: list[Fault]
    seed: int | None = None


def _add_control(app: web.Application, faults: Faults, requests: RequestCounts) -> None:
    async def get_faults(_: web.Request) -> web.Response:
        return web.json_response(faults.state())

    async def put_faults(request: web.Request) -> web.Response:
        try:
            order = msgspec.json.decode(await request.read(), type=_Order)
            faults.set(*order.faults, seed=order.seed)
        except ValueError as error:  # msgspec's errors are ValueErrors too
            return web.Response(status=400, text=f"these faults cannot be set: {error}")
        return web.json_response(faults.state())

    async def delete_faults(_: web.Request) -> web.Response:
        faults.clear()
        return web.json_response(faults.state())

    async def get_requests(_: web.Request) -> web.Response:
        return web.json_response(requests.state())

    async def delete_requests(_: web.Request) -> web.Response:
        requests.reset()
        return web.json_response(requests.state())

    app.router.add_get(CONTROL_PREFIX + "faults", get_faults)
    app.router.add_put(CONTROL_PREFIX + "faults", put_faults)
    app.router.add_delete(CONTROL_PREFIX + "faults", delete_faults)
    app.router.add_get(CONTROL_PREFIX + "requests", get_requests)
    app.router.add_delete(CONTROL_PREFIX + "requests", delete_requests)
