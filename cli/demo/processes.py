"""The demo's processes: `isvc-sync` sub-commands, each with its log in a file, each ended by its id."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path

from cli.daemons import settings_of
from shared.settings import describe

_GRACE_S = 10.0


class DemoError(Exception):
    """The demo cannot go on; the message says what was expected and what was seen."""


class Child:
    """One process. It runs in a session of its own, so that Ctrl-C reaches the demo alone, which ends all in order."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, arguments: list[str], environ: Mapping[str, str], log: Path) -> "Child":
        """Start `isvc-sync` with `arguments`, and of our settings with those of `environ` only."""
        command = [sys.executable, "-P", "-m", "cli", *arguments]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**_neutral(os.environ), **environ},
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -9 after a kill."""
        return self._process.returncode

    async def kill(self) -> None:
        """SIGKILL: it can neither finish nor clean up anything."""
        if self.exit_code is None:
            self._process.kill()
        await self._process.wait()

    async def end(self) -> int:
        """SIGTERM, and SIGKILL when it does not end in time; return the exit code."""
        if self.exit_code is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(_GRACE_S):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            return await self._process.wait()

    def last_lines(self, count: int = 12) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-count:]


def _neutral(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out settings of ours that a shell may hold for a real cluster; how to log and to trace stays."""
    ours = {row.variable for role in ("producer", "consumer") for row in describe(settings_of(role))}
    return {name: value for name, value in environ.items() if name not in ours or name.startswith(("LOG_", "OTEL_"))}


def free_port() -> int:
    """Return a port that was free a moment ago: the health server's, whom we must know before it starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
