"""The sandbox's registry as a process of its own, which notes when each write of a record became visible.

    python -m bench.registry          writes its address to standard output; ends when standard input does

The note is made inside the server, right after the write and before its answer leaves, in CLOCK_MONOTONIC: on Linux one
clock for all processes of a machine. So nobody need poll, and nothing is added to what is measured but the note.
`GET /_bench/writes` returns the notes, {externalId: [nanoseconds, ...]} in the order of the writes.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from sandbox import registry
from sandbox import web as sandbox_web

NOTES = "/_bench/writes"
_WRITES = {"POST", "PATCH"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Written(msgspec.Struct, rename="camel"):
    external_id: str = ""


def noting(app: web.Application) -> None:
    """Let the server note its writes."""
    notes: list[tuple[int, bytes]] = []

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == NOTES:
            return web.json_response(_by_record(notes))
        response = await handler(request)
        written_ns = time.monotonic_ns()
        if request.method in _WRITES and "/inference_service" in request.path and response.status < 300:
            assert isinstance(response, web.Response)
            assert isinstance(response.body, bytes), "the registry answers whole"
            notes.append((written_ns, response.body))  # decoded later: now it would take time
        return response

    app.middlewares.append(note)


def _by_record(notes: list[tuple[int, bytes]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for written_ns, body in notes:
        found.setdefault(msgspec.json.decode(body, type=_Written).external_id, []).append(written_ns)
    return found


async def serve() -> None:
    app = registry.RegistryServer(registry.Options()).app()
    noting(app)
    async with sandbox_web.serve(app) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
