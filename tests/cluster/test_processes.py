"""The rule that no test run leaves a process behind, shown on processes that cost nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import processes
from tests.cluster.processes import Guard, Process, ProcessError

SLEEPER = ["/bin/sleep", "600"]


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


def start(guard: Guard, tmp_path: Path, *command: str) -> Process:
    return Process(guard, command, tmp_path / "log", dict(os.environ))


def runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_killed_test_run_leaves_no_process(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from cluster.processes import Guard, Process;"
        f"p = Process(Guard(), {SLEEPER!r}, Path(sys.argv[1]), dict(os.environ)); print(p.pid, flush=True);"
        "sys.stdin.read()"
    )
    tests = str(Path(processes.__file__).parents[1])
    test_run = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        env={**os.environ, "PYTHONPATH": tests},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(test_run.stdout.readline())
    assert runs(pid)
    test_run.kill()
    test_run.communicate()
    processes.wait_until(lambda: not runs(pid), "the sleeper is gone", deadline_s=5)


def test_a_stopped_process_is_not_killed_again_by_the_guard(tmp_path):
    guard = Guard()
    first = start(guard, tmp_path, *SLEEPER)
    second = start(guard, tmp_path, *SLEEPER)
    first.stop()
    guard.close()
    assert second._popen.wait(5) == -signal.SIGKILL
    assert first._popen.returncode == -signal.SIGTERM


def test_stop_kills_what_ignores_sigterm(guard, tmp_path):
    stubborn = start(guard, tmp_path, "/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.05; done")
    stubborn.wait_until(lambda: "deaf" in stubborn.log.read_text(), "trap set")
    stubborn.stop(grace_s=0.2)
    assert not runs(stubborn.pid)


def test_stop_wakes_a_paused_process_first(guard, tmp_path):
    paused = start(
        guard, tmp_path, "/bin/sh", "-c", "trap 'echo goodbye; exit' TERM; echo up; while :; do sleep 0.05; done"
    )
    paused.wait_until(lambda: "up" in paused.log.read_text(), "trap set")
    paused.send(signal.SIGSTOP)
    paused.stop(grace_s=5)
    assert paused.log.read_text().endswith("goodbye\n")


def test_a_process_that_ends_while_waited_for_is_reported_with_its_log(guard, tmp_path):
    failing = start(guard, tmp_path, "/bin/sh", "-c", "echo no such flag; exit 3")
    with pytest.raises(ProcessError, match=r"(?s)sh ended with 3, waiting for: ready.*no such flag"):
        failing.wait_until(lambda: False, "ready")


def test_a_deadline_that_passes_is_reported_with_the_log(guard, tmp_path):
    silent = start(guard, tmp_path, "/bin/sh", "-c", "echo still thinking; exec sleep 600")
    silent.wait_until(lambda: "thinking" in silent.log.read_text(), "first words")
    with pytest.raises(ProcessError, match=r"(?s)sh: ready: not within 0.1 s.*still thinking"):
        silent.wait_until(lambda: False, "ready", deadline_s=0.1)
    silent.stop()
