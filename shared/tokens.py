"""Bearer tokens that rotate: read for each request, and once more when a server says 401.

Used towards Kubernetes (`shared/cluster.py`) and towards registries. A token never appears in a message.
"""

from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Protocol

import httpx

from shared.errors import UnauthorizedError


class TokenSource(Protocol):
    """Where the value of the Authorization header comes from."""

    def current(self) -> Awaitable[str | None]:
        """Return the header's value for a request that starts now; None: send none."""

    def refused(self, value: str | None) -> Awaitable[str | None]:
        """Return the value to try after a 401 that answered `value`; equal to `value`: there is no better one."""


class TokenFile:
    """A file that somebody rotates (the kubelet, a secret store), cached while its inode, size and time stay equal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._value = ""

    async def current(self) -> str:
        """Return `Bearer <content>`. Raises UnauthorizedError while the file is missing, or holds no token."""
        try:
            stat = self._path.stat()  # follows the kubelet's symbolic links; local, so it does not block the loop
            seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if seen != self._seen:
                self._value, self._seen = self._read(), seen
        except OSError as error:
            raise UnauthorizedError(f"the token file {self._path} cannot be read: {error.strerror}") from error
        return self._value

    async def refused(self, value: str | None) -> str:  # noqa: ARG002 - the file alone knows
        self._seen = None
        return await self.current()

    def _read(self) -> str:
        content = self._path.read_text(encoding="ascii", errors="replace").strip()
        if not content:
            raise UnauthorizedError(f"the token file {self._path} is empty")
        if not (content.isascii() and content.isprintable()):
            # An HTTP library would refuse it as a header value, and quote it in its message.
            raise UnauthorizedError(f"the token file {self._path} holds more than one line of printable ASCII")
        return f"Bearer {content}"


class TokenAuth(httpx.Auth):
    """httpx's hook, asynchronous clients only: sets Authorization, and repeats a request once after a 401."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        value = await self._source.current()
        _set(request, value)
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED:
            newer = await self._source.refused(value)
            if newer != value:
                _set(request, newer)
                yield request


def _set(request: httpx.Request, value: str | None) -> None:
    if value is not None:
        request.headers["Authorization"] = value
