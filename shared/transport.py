"""The way to the Kubernetes API: what an answer may cost, and what of it httpx gets to see.

A gateway may answer anything, without end, and on purpose. The bounds hold for the bytes on the wire and for what
becomes of them: a compressed body of some kilobytes can hold gigabytes. They therefore stand below httpx, which would
join and decompress all there is.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from typing import Final

import httpx
from msgspec import Struct

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest honest answers are pages: 500 objects of some 3 to 20 KB. A single object has 3 MiB at most. Decoded,
such a page takes about six times as much, which the producer's pod has.
"""
ANSWER_S_MAX: Final = 120.0  # an API server gives up after 60 s itself
ERROR_BYTES_MAX: Final = 64 * 1024  # a Status has some hundred bytes; what follows is left unread
ERROR_S_MAX: Final = 5.0
ENCODING: Final = "gzip"
"""What we accept (`Accept-Encoding`)."""

NO_ANSWER: Final = (
    httpx.RequestError,
    httpx.InvalidURL,  # `Location: http:login`, also where redirects are not followed
    UnicodeError,  # `Location: http://xn--a/`; a cookie that httpx keeps, and cannot send back
)
"""What httpx raises when a server gives no answer, or one that httpx cannot take."""

_KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),  # as Go's clients do
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
]
_PLAIN: Final = {"", "identity"}
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16
# httpx parses the first although it follows no redirect, and keeps the second: both raise what is no RequestError.
_NOTHING_TO_US: Final = ("Location", "Set-Cookie")


def connections(tls: ssl.SSLContext | None, proxy: str | None) -> httpx.AsyncHTTPTransport:
    """Return httpx's own transport, for one API server."""
    return httpx.AsyncHTTPTransport(
        verify=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # none for plain http: loads no CA bundle
        trust_env=False,
        proxy=proxy,
        socket_options=_KEEPALIVE,
        limits=httpx.Limits(max_connections=20, max_keepalive_connections=10, keepalive_expiry=30),
    )


class AnswerTooLongError(httpx.ReadError):
    """A body is longer than an honest one."""


class _Bound(Struct, frozen=True):
    """How much of a body is read, and for how long. `cut`: what is longer ends there; otherwise it is an error."""

    bytes_max: int
    seconds_max: float
    cut: bool = False


class CautiousTransport(httpx.AsyncBaseTransport):
    """Bounds the body of each answer of `inner`, and decodes it.

    Of an error a beginning is enough: it is cut. Another body that is too long raises AnswerTooLongError. `endless`:
    successes are streams, uncompressed and without a bound of their own.
    """

    def __init__(
        self, inner: httpx.AsyncBaseTransport, *, endless: bool = False, bytes_max: int = ANSWER_BYTES_MAX
    ) -> None:
        self._inner = inner
        self._success = None if endless else _Bound(bytes_max, ANSWER_S_MAX)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        for name in _NOTHING_TO_US:
            response.headers.pop(name, None)
        named = response.headers.pop("Content-Encoding", "")  # else httpx would decode it again
        encoding = named.strip().lower().removeprefix("x-")
        bound = self._success if response.is_success else _ERROR
        packed = encoding == request.headers.get("Accept-Encoding") == ENCODING and bound is not None
        if not packed and encoding not in _PLAIN:
            await response.stream.aclose()
            raise httpx.DecodingError("the answer has an encoding that was not asked for")
        if bound is not None:
            response.stream = _BoundedStream(response.stream, bound, packed=packed)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    """A body, decoded, as far as `bound` allows."""

    def __init__(self, inner: httpx.AsyncByteStream, bound: _Bound, *, packed: bool) -> None:
        self._inner = inner
        self._bound = bound
        self._inflater = zlib.decompressobj(_GZIP_WBITS) if packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop, bound = asyncio.get_running_loop(), self._bound
        ends = loop.time() + bound.seconds_max  # httpx counts each read anew: a dripping answer would never end
        sent, left = 0, bound.bytes_max
        async for chunk in self._inner:
            sent += len(chunk)
            part = self._inflated(chunk, left)
            too_long, too_late = len(part) > left or sent > bound.bytes_max, loop.time() > ends
            if bound.cut and (too_long or too_late):
                yield part[:left]
                return
            if too_long:
                raise AnswerTooLongError(f"the answer is given up, it is longer than {bound.bytes_max // 1024} KiB")
            if too_late:
                raise httpx.ReadTimeout(f"the answer is given up, it takes longer than {bound.seconds_max:.0f} s")
            left -= len(part)
            yield part

    def _inflated(self, chunk: bytes, left: int) -> bytes:
        inflater = self._inflater
        if inflater is None:
            return chunk
        if inflater.eof:
            return b""  # it would keep what follows
        try:
            return inflater.decompress(chunk, left + 1)  # one more byte says that it is too long
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer's gzip is broken ({error})") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


_ERROR: Final = _Bound(ERROR_BYTES_MAX, ERROR_S_MAX, cut=True)
