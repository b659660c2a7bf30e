"""Run an aiohttp application on the loopback interface and take it down again, leaving no socket and no task behind.

Both servers of the sandbox (Kubernetes API, Model Registry) start through `serve`:

    async with serve(app) as url:      # the system chooses the port
        await client.get(url + "/...")
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

_STOP_GRACE_S = 0.2
"""Seconds for answers under way when the server stops; then connections are cut (watches never end by themselves)."""


@asynccontextmanager
async def serve(app: web.Application, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve `app` and yield its base URL without a trailing slash; `port=0` lets the system choose.

    Raises OSError when the port is taken.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_GRACE_S, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        await site.start()
        bound = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()
