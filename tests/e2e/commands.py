"""Commands as their users run them: as processes, with nothing of this one's environment but where programs are."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios

from msgspec import Struct

from tests.e2e.pipeline import Pipeline

BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}


class Done(Struct):
    """How a command ended."""

    code: int
    out: str
    err: str = ""


async def run(environ: dict[str, str], *arguments: str) -> Done:
    """Run a command to its end, with nobody to be asked."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *arguments),
        env=BARE | environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


async def command(pipeline: Pipeline, *arguments: str, **environ: str) -> Done:
    return await run(pipeline.world.environ | environ, *arguments)


async def typed(pipeline: Pipeline, answer: str, *arguments: str) -> Done:
    """Run a command on a terminal of 80 columns, and answer its question."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *arguments),
        env=BARE | pipeline.world.environ | {"TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while True:
            try:
                part = await asyncio.to_thread(os.read, master, 4096)
            except OSError:  # the other end is closed
                break
            shown += part
            if shown.rstrip().endswith(b"[y/N]:"):
                os.write(master, answer.encode() + b"\n")
        return Done(await asyncio.wait_for(process.wait(), 60), shown.decode())
    finally:
        os.close(master)
