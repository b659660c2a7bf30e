"""Bodies of answers, no longer than an honest one, whatever a server sends.

The bound holds for the bytes on the wire and for what becomes of them: a compressed body of some kilobytes can hold
gigabytes. It therefore stands below httpx, which would join and decompress all there is.
"""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import httpx

from shared.errors import UnreachableError

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest honest answers are pages: 200 records of some 10 KB, with a history of 50 versions each, or 500 Services
of a few KB. One object of Kubernetes has 3 MiB at most. Four such answers, a registry's share of those in flight, fit
into a pod's 512 MiB.
"""

ENCODINGS: Final = "gzip"
"""What we accept (`Accept-Encoding`)."""

_PLAIN: Final = {"", "identity"}
_GZIP: Final = {"gzip", "x-gzip"}
_GZIP_WBITS: Final = zlib.MAX_WBITS | 16


class Bounded(httpx.Auth):
    """Bounds each answer to one request before httpx reads it; the credentials are those of `inner`.

    The place is httpx's: nowhere else is the answer seen that is to be repeated with other credentials, whose body is
    read, too.
    """

    def __init__(self, inner: httpx.Auth | None, what: str) -> None:
        """Let `what` begin the message of the UnreachableError that reading a longer body raises."""
        self._inner = httpx.Auth() if inner is None else inner
        self._what = what

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        async with aclosing(self._inner.async_auth_flow(request)) as flow:
            following = await anext(flow)
            while True:
                response = yield following
                _bound(response, self._what)
                try:
                    following = await flow.asend(response)
                except StopAsyncIteration:
                    return


def _bound(response: httpx.Response, what: str) -> None:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    encoding = response.headers.pop("Content-Encoding", "").strip().lower()  # else httpx would decode it again
    response.stream = _BoundedStream(response.stream, encoding, what)


class _BoundedStream(httpx.AsyncByteStream):
    """A body, decoded. Iterating raises UnreachableError beyond the bound, and for what cannot be decoded."""

    def __init__(self, inner: httpx.AsyncByteStream, encoding: str, what: str) -> None:
        self._inner = inner
        self._encoding = encoding
        self._what = what

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in _PLAIN | _GZIP:
            raise UnreachableError(f"{self._what}: the answer has an encoding that was not asked for")
        inflater = zlib.decompressobj(_GZIP_WBITS) if self._encoding in _GZIP else None
        sent, decoded = 0, 0
        async for chunk in self._inner:
            sent += len(chunk)
            part = chunk if inflater is None else self._inflated(inflater, chunk, ANSWER_BYTES_MAX - decoded)
            decoded += len(part)
            if max(sent, decoded) > ANSWER_BYTES_MAX:
                raise UnreachableError(
                    f"{self._what}: the answer is given up, it is longer than {ANSWER_BYTES_MAX >> 20} MiB"
                )
            yield part

    def _inflated(self, inflater: "zlib._Decompress", chunk: bytes, left: int) -> bytes:
        if inflater.eof:
            return b""  # it would keep what follows
        try:
            return inflater.decompress(chunk, left + 1)  # one more byte says that it is too long
        except zlib.error as error:
            raise UnreachableError(f"{self._what}: the answer's gzip is broken ({error})") from error

    async def aclose(self) -> None:
        await self._inner.aclose()
