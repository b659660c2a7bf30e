"""A process of ours, started with environment variables only, ended in every way, and asked how it is."""

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.processes import Guard
from tests.eventually import eventually

_STOP_GRACE_S = 15.0


class Role:
    """One process of ours, started and ended at will; its log goes on in one file."""

    def __init__(self, module: str, environ: Mapping[str, str], log: Path, guard: Guard) -> None:
        self.module = module
        self._environ = {**os.environ, **environ, "LOG_FORMAT": "json"}
        self._log = log
        self._guard = guard
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0  # of the present process

    async def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        await self.launch()
        await eventually(self.is_ready, f"{self.module} is ready\n{self._log_tail()}")

    async def launch(self) -> None:
        assert self._process is None, f"the {self.module} runs already"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self.module),
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._guard.started(self._process.pid)

    def strike(self) -> None:
        """SIGKILL at this very moment, without waiting for the end; `kill` must follow."""
        assert self._process is not None
        _signal(self._process.pid, signal.SIGKILL)

    async def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        assert await self._end(signal.SIGKILL) == -signal.SIGKILL

    async def stop(self) -> int:
        """SIGTERM; return the exit code."""
        return await self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"the {self.module} does not run"
        return self._process.pid

    @property
    def has_died(self) -> bool:
        """Whether the process has ended by itself; `kill` must follow."""
        return self._process is not None and self._process.returncode is not None

    @property
    def runs(self) -> bool:
        return self._process is not None

    async def close(self) -> None:
        if self._process is not None:
            await self._end(signal.SIGKILL)

    async def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, f"the {self.module} does not run"
        if process.returncode is None:
            _signal(process.pid, how)
        try:
            async with asyncio.timeout(_STOP_GRACE_S):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(f"the {self.module} did not end:\n{self._log_tail()}") from None
        finally:
            self._guard.ended(process.pid)
        return code

    async def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, f"the {self.module} has ended:\n{self._log_tail()}"
        return self._health_port() is not None and (await self._get("/readyz"))[0] == 200

    async def metric(self, name: str, **labels: str) -> float:
        """Return a metric as Prometheus reads it, summed over all labels that are not given; 0 before it exists."""
        families = text_string_to_metric_families(await self.scrape())
        samples = (sample for family in families for sample in family.samples)
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    async def scrape(self) -> str:
        return (await self._get("/metrics"))[1]

    async def _get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self._health_port()}{path}"
        return await asyncio.to_thread(_fetch, url)

    def _health_port(self) -> int | None:
        for entry in self.entries(since=self._log_start):
            if port := entry.get("health_port") or (entry["message"] == "health is served" and entry["port"]):
                return int(port)
        return None

    def log(self) -> bytes:
        """Return all that it ever wrote."""
        return self._log.read_bytes() if self._log.exists() else b""

    def entries(self, level: str = "", since: int = 0) -> list[dict[str, Any]]:
        """Return the complete log lines of a level, or of all."""
        lines = self.log()[since:].split(b"\n")[:-1]
        decoded = (json.loads(line) for line in lines)
        return [entry for entry in decoded if not level or entry["level"] == level]

    def _log_tail(self) -> str:
        return "\n".join(self.log().decode(errors="replace").splitlines()[-30:])


def _signal(pid: int, how: signal.Signals) -> None:
    """Send a signal. Not by Popen, which would take the exit code of an ended process from asyncio's child watcher."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def _fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
