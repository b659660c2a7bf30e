"""`isvc-sync demo` as a user runs it: from start to last line, and when something goes wrong in the middle."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEMO = [sys.executable, "-m", "cli", "demo", "--pace", "0.3"]

# What a shell may hold that works with a real cluster: the demo must not care.
OF_A_REAL_CLUSTER = {"KUBE_CONTEXT": "production", "SUBJECT_PREFIX": "prod", "WRITE_BACK": "off", "SHARDS": "4"}


@contextmanager
def demo(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo that keeps its files in `directory`; told to end its processes if the test gives up."""
    environ = {**os.environ, "TMPDIR": str(directory), **OF_A_REAL_CLUSTER}
    running = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        running.communicate(timeout=30)


def read_until(running: subprocess.Popen[str], text: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if text in line:
            return
    raise AssertionError(f"the demo never said {text!r}")


def children(pid: int) -> dict[str, int]:
    """The demo's processes by their sub-command."""
    pids = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    commands = {child: Path(f"/proc/{child}/cmdline").read_text().split("\0") for child in pids}
    return {command[command.index("cli") + 1]: child for child, command in commands.items() if "cli" in command}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_passes_all_its_checks_in_plain_lines_and_leaves_nothing(tmp_path):
    started = time.monotonic()
    with demo(tmp_path) as running:
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 0, output
    assert re.fullmatch(r"demo: 1\d checks passed, 0 failed", output.splitlines()[-1]), output
    assert time.monotonic() - started < 60
    assert "\x1b" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_consumer_that_dies_fails_the_demo_which_shows_the_logs_and_ends_the_rest(tmp_path):
    with demo(tmp_path) as running:
        read_until(running, "KServe starts their pods")
        started = children(running.pid)
        assert set(started) == {"sandbox", "producer", "consumer"}
        os.kill(started["consumer"], signal.SIGKILL)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 1, output
    assert re.search(
        r"FAILED +the story comes to its end .*the consumer has ended with\s+exit\s+code -9", output, re.DOTALL
    )
    assert "--- the last lines of consumer.log ---" in output
    [directory] = tmp_path.iterdir()
    assert f"Logs: {directory}" in output
    assert re.fullmatch(r"demo: \d+ checks passed, [1-9]\d* failed", output.splitlines()[-1])
    assert [name for name, pid in started.items() if is_running(pid)] == []


def test_an_interrupted_demo_ends_all_its_processes(tmp_path):
    with demo(tmp_path) as running:
        read_until(running, "12 objects of 12 shapes are created")
        started = children(running.pid)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=30)
    assert running.returncode == 130, output
    assert set(started) == {"sandbox", "producer", "consumer"}
    assert [name for name, pid in started.items() if is_running(pid)] == []


def test_a_demo_whose_reader_goes_away_ends_all_its_processes_quietly(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        read_until(running, "12 objects of 12 shapes are created")
        started = children(running.pid)
        assert running.stdout is not None
        running.stdout.close()
        running.wait(timeout=30)
    finally:
        running.kill()
        assert running.stderr is not None
        said = running.stderr.read()
        running.stderr.close()
    assert (running.returncode, said) == (1, "")
    assert set(started) == {"sandbox", "producer", "consumer"}
    assert [name for name, pid in started.items() if is_running(pid)] == []
