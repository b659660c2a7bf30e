"""One HTTP exchange of the consumer: before a deadline, in a span, counted. Below both `registry.py` and `kube.py`.

The deadline is the point. A shard's owner may act only while it owns the shard, so each request asks right before it
leaves how long that still is, and nothing is on the wire beyond it. One that writes asks again at the socket: a process
may be paused on the way there, and a new connection takes its time.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import msgspec
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from shared.errors import NotSentError, UnreachableError
from shared.telemetry import inject
from shared.transport import ENCODING, NO_ANSWER

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0
REQUEST_MIN_S: Final = 1.0
"""With less than this left nothing is sent: most of such requests would be cut off with their effect unknown."""

Budget = Callable[[], float]
"""Seconds in which an effect may still happen (`inf`: no limit). Asked in the caller's task right before a request
leaves; must return at once and not raise."""

Trace = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Called by httpcore at each step of a request; what it raises ends the request, and its connection."""

OnRequest = Callable[[str, str, float], None]
"""Told of each exchange: HTTP method; status, or `unreachable`, or `failed` (cancelled, or not sent); seconds."""

_AT_THE_SOCKET: Final = ("send_request_headers.started", "send_request_body.started")  # httpcore, for any protocol
_TEXT_CHARS: Final = 200


class Instruments(msgspec.Struct, frozen=True):
    """Where an exchange is told of."""

    tracer: Tracer
    on_request: OnRequest


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `path` is relative to the client's base URL; `route` is the path with placeholders instead of ids."""

    method: str
    path: str
    route: str
    params: dict[str, str] = {}
    body: bytes = b""
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Exchanger:
    """Sends the requests of one client, which has a base URL."""

    def __init__(self, http: httpx.AsyncClient, instruments: Instruments) -> None:
        self._http = http
        self._instruments = instruments
        address = http.base_url
        self._peer: dict[str, str | int] = {"server.address": address.host}
        if address.port is not None:
            self._peer["server.port"] = address.port

    async def send(self, outgoing: Outgoing, budget: Budget) -> httpx.Response:
        """Return the answer, its body read, whatever its status.

        Raises UnreachableError when none came in time, or one that is too long to be honest; NotSentError when too
        little time is left to ask, or none any more for the rest of the request, of which nobody can make anything.
        """
        left_s = budget()
        if left_s < REQUEST_MIN_S:
            raise NotSentError(f"{outgoing}: not sent, the ownership of its shard ends")
        name = f"{outgoing.method} {outgoing.route}"
        attributes = {"http.request.method": outgoing.method, "url.template": outgoing.route, **self._peer}
        code, started_s = "failed", time.monotonic()
        tracer = self._instruments.tracer
        with tracer.start_as_current_span(name, kind=SpanKind.CLIENT, attributes=attributes) as span:
            try:
                response = await self._answer(outgoing, budget, min(REQUEST_TIMEOUT_S, left_s))
                code = str(response.status_code)
                span.set_attribute("http.response.status_code", response.status_code)
            except UnreachableError:
                code = "unreachable"
                raise
            finally:
                self._told(outgoing, code, time.monotonic() - started_s)
            if response.is_error:
                span.set_attribute("error.type", code)
                span.set_status(StatusCode.ERROR)
        return response

    def _told(self, outgoing: Outgoing, code: str, seconds: float) -> None:
        self._instruments.on_request(outgoing.method, code, seconds)
        fields = {"method": outgoing.method, "route": outgoing.route, "status": code, "ms": round(seconds * 1000, 1)}
        logger.log(logging.DEBUG if outgoing.method == "GET" else logging.INFO, "request", extra=fields)

    async def _answer(self, outgoing: Outgoing, budget: Budget, timeout_s: float) -> httpx.Response:
        headers = {"Accept-Encoding": ENCODING}
        inject(headers)
        if outgoing.body:
            headers["Content-Type"] = outgoing.content_type
        request = self._http.build_request(
            outgoing.method,
            outgoing.path,
            params=outgoing.params or None,
            content=outgoing.body or None,
            headers=headers,
            extensions={} if outgoing.method == "GET" else {"trace": _asked_at_the_socket(outgoing, budget)},
        )
        try:
            async with asyncio.timeout(timeout_s):  # httpx counts each read anew: a dripping answer would never end
                return await self._http.send(request)
        except TimeoutError as error:
            raise UnreachableError(f"{outgoing}: no answer within {timeout_s:.1f} s") from error
        except NO_ANSWER as error:
            raise UnreachableError(f"{outgoing}: no answer ({_reason(error)})") from error


def _asked_at_the_socket(outgoing: Outgoing, budget: Budget) -> Trace:
    async def ask(event: str, _info: dict[str, Any]) -> None:
        if event.endswith(_AT_THE_SOCKET) and budget() <= 0:
            raise NotSentError(f"{outgoing}: not sent, the ownership of its shard has ended on the way")

    return ask


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.LocalProtocolError):
        return type(error).__name__  # its text shows the header that it refused: the token
    return " ".join(str(error).split())[:_TEXT_CHARS] or type(error).__name__
