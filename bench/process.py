"""A daemon as a process of its own, and what it takes: resident memory and processor time, from /proc (Linux)."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec

_KIB = 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: bench
clusters: [{{name: bench, cluster: {{server: "{url}"}}}}]
users: [{{name: bench, user: {{}}}}]
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
"""


class Memory(msgspec.Struct, frozen=True):
    """Resident bytes: now, and at most since `Process.forget_peak`."""

    resident: int
    peak: int


class Process:
    """A running child."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._proc = Path("/proc") / str(process.pid)

    def memory(self) -> Memory:
        """Read the memory. Raises RuntimeError when the process has ended, with its last words."""
        self.require_alive()
        fields = dict(line.split(":", 1) for line in (self._proc / "status").read_text().splitlines())
        return Memory(*(int(fields[name].split()[0]) * _KIB for name in ("VmRSS", "VmHWM")))

    def forget_peak(self) -> None:
        """Begin a new peak with what is resident now."""
        (self._proc / "clear_refs").write_text("5")

    def processor_s(self) -> float:
        """Return the processor time used so far, in seconds."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def require_alive(self) -> None:
        if self._process.returncode is not None:
            last = " / ".join(self._log.read_text().splitlines()[-3:])
            raise RuntimeError(f"the {self._log.stem} ended with {self._process.returncode}: {last}")


def producer(directory: Path, environ: Mapping[str, str]) -> AbstractAsyncContextManager[Process]:
    """Run `python -m producer`; see `daemon`."""
    return daemon("producer", directory, environ)


@asynccontextmanager
async def daemon(module: str, directory: Path, environ: Mapping[str, str]) -> AsyncIterator[Process]:
    """Run `python -m <module>` with these variables and no others of ours; its log is in `directory`."""
    log = directory / f"{module}.log"
    own = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH", "HOME"}}
    own |= {name: value for name, value in os.environ.items() if name.startswith(("MALLOC_", "PYTHON", "GLIBC_"))}
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, env={**own, **environ}, stdout=file, stderr=file
        )
    try:
        yield Process(process, log)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def write_kubeconfig(directory: Path, url: str) -> Path:
    """Write a kubeconfig for an API without authentication; return its path."""
    path = directory / "kubeconfig"
    path.write_text(_KUBECONFIG.format(url=url))
    return path


def variables(kubeconfig: Path, nats_url: str) -> dict[str, str]:
    """Return the environment of a producer that watches InferenceServices there."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "NATS_URL": nats_url,
        "CLUSTER_NAME": "bench",
        "KINDS": "isvc",
        "HEALTH_HOST": "127.0.0.1",
        "HEALTH_PORT": "0",
    }
