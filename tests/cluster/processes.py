"""Processes that a test run starts and never leaves behind, however it ends.

A process starts in a session of its own, so that Ctrl-C reaches pytest alone and the fixtures stop things in their
order. When pytest itself is killed there is nobody to do that: the guard, a small process that holds the other end of a
pipe, reads its end of file and kills, by id, whatever was not reported as ended.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

LOG_TAIL_LINES = 30


class ProcessError(RuntimeError):
    """A process ended too early or did not do what was waited for; the message has the end of its log."""


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    """Poll `condition` until it holds. Raises ProcessError, naming `what`, when it does not within `deadline_s`."""
    give_up = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > give_up:
            raise ProcessError(f"{what}: not within {deadline_s:g} s")
        time.sleep(0.02)


class Guard:
    """Kills the processes it was told of when this process ends without having said that they ended."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, start_new_session=True, text=True
        )

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None, "the guard was started with a pipe"
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def started(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def ended(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def close(self) -> None:
        """End the guard; it kills what is still running. Doing it twice does no harm."""
        if self._process.poll() is None:
            self._process.communicate()


class Process:
    """One process with its log in a file; `stop` asks, waits, and kills if that was in vain."""

    def __init__(self, guard: Guard, command: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._guard = guard
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._guard.started(self._popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def wait_until(self, condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
        """Poll `condition`. Raises ProcessError when the process ends first or the deadline passes."""

        def ended_or_holds() -> bool:
            return self._popen.poll() is not None or condition()

        try:
            wait_until(ended_or_holds, f"{self.name}: {what}", deadline_s)
        except ProcessError as error:
            raise ProcessError(f"{error}\n{self.log_tail()}") from None
        if self._popen.poll() is not None:
            raise ProcessError(
                f"{self.name} ended with {self._popen.returncode}, waiting for: {what}\n{self.log_tail()}"
            )

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def stop(self, grace_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after `grace_s`; a paused process is woken first. Doing it twice does no harm."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGCONT)
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):  # answered by the kill below
                self._popen.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL at once. Doing it twice does no harm."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        self._guard.ended(self._popen.pid)


def _kill_what_is_left(lines: IO[str]) -> None:
    """The guard's whole life: read `+pid` and `-pid` until the other side is gone, then kill what remains."""
    running: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            running.add(pid)
        else:
            running.discard(pid)
    _kill(running)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _kill_what_is_left(sys.stdin)
