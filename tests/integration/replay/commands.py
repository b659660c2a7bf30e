"""`isvc-sync replay --to` as a process: what it is given, and how it ended."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}


class Done(Struct):
    """How a command ended."""

    code: int | None
    out: str
    err: str


@asynccontextmanager
async def started(*arguments: object, environ: dict[str, str] | None = None) -> AsyncIterator[Process]:
    """Start the command; whatever it still does at the end of the block, it is killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "replay", *map(str, arguments)),
        env=BARE | (environ or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: Process) -> Done:
    out, err = await asyncio.wait_for(process.communicate(), 220)
    return Done(process.returncode, out.decode(), err.decode())


async def replay(*arguments: object, environ: dict[str, str] | None = None) -> Done:
    async with started(*arguments, environ=environ) as process:
        return await ended(process)
