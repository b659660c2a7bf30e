"""`isvc-sync` as a process, and an event stream with stories in it."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from replay.capture import Captured, CutError, Facts, Header
from replay.files import reading
from shared import events
from shared.broker import Broker
from shared.subjects import Subjects

ROOT = Path(__file__).parents[3]
BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
SUBJECTS = Subjects("isvc", "prod", 16)
STREAM = "ISVC_EVENTS"


class Done(Struct):
    """How a command ended."""

    code: int | None
    out: str
    err: str


@asynccontextmanager
async def running(*arguments: object, environ: dict[str, str] | None = None) -> AsyncIterator[Process]:
    """A command that goes on; killed, should a test leave it so."""
    process = await started(*arguments, environ=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def started(*arguments: object, environ: dict[str, str] | None = None, cwd: Path = ROOT) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *map(str, arguments)),
        env=BARE | {"PYTHONPATH": str(ROOT)} | (environ or {}),
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: Process, stdin: bytes = b"") -> Done:
    out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    return Done(process.returncode, out.decode(), err.decode())


async def command(*arguments: object, environ: dict[str, str] | None = None, cwd: Path = ROOT) -> Done:
    return await ended(await started(*arguments, environ=environ, cwd=cwd))


async def publish(broker: Broker, *lines: Captured) -> None:
    """Put events into the stream, as a producer does but for their message ids."""
    for line in lines:
        headers = {name: text for name, text in events.encode(line.event).items() if name != events.MESSAGE_ID}
        await broker.jetstream.publish(SUBJECTS.event(line.event.key), line.data, headers=headers)


class Found(Struct):
    """What is in a capture file; nothing, not even a header, while it is about to be made."""

    header: Header | None
    events: list[Captured]
    facts: list[Facts]
    cut: str | None


def found_in(path: Path) -> Found:
    try:
        with reading(path) as capture:
            lines = list(capture)
    except CutError as error:
        return Found(None, [], [], str(error))
    captured = [line for line in lines if isinstance(line, Captured)]
    return Found(capture.header, captured, [line for line in lines if isinstance(line, Facts)], capture.cut)
