"""The other commands of `isvc-sync`, as processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from tests.cluster.processes import Guard, Process

COMMAND = [sys.executable, "-m", "cli"]
CAPTURE = Path(__file__).parents[1] / "captures" / "create-ready-delete.jsonl"
# Without anything that a developer's shell may have set.
BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=BARE, timeout=30, check=False)


@pytest.fixture
def guard() -> Iterator[Guard]:
    """Ends what a test leaves running, even when pytest is killed."""
    guard = Guard()
    yield guard
    guard.close()


def records(registry: str) -> list[dict[str, str]]:
    return httpx.get(f"{registry}/api/model_registry/v1alpha3/inference_services").json()["items"]


def test_version_is_that_of_the_installed_package():
    done = run("version")
    assert (done.returncode, done.stdout) == (0, f"isvc-sync {version('isvc-sync')}\n")


@pytest.mark.parametrize(
    ("role", "missing"), [("producer", ["CLUSTER_NAME"]), ("consumer", ["CLUSTER_NAME", "REGISTRY_URL"])]
)
def test_a_daemon_without_settings_names_every_missing_variable(role, missing):
    done = run(role)
    assert done.returncode == 2
    assert [name for name in missing if f"{name} is not set" not in done.stderr] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("role", "own"), [("producer", "KINDS"), ("consumer", "REGISTRY_URL")])
def test_the_help_of_a_daemon_shows_its_variables(role, own):
    shown = run(role, "--help").stdout
    assert "Environment variables" in shown
    assert [name for name in (own, "CLUSTER_NAME", "NATS_URL", "KUBECONFIG") if name not in shown] == []


def test_a_daemon_starts_without_the_command_line_and_the_other_daemon():
    code = (
        "import sys; sys.argv[1:] = ['consumer']\nfrom cli.__main__ import main\ntry:\n    main()\n"
        "finally:\n    print(sorted({'typer', 'cli.app', 'sandbox', 'producer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=BARE, check=False)
    assert done.stdout == "[]\n"


def test_a_played_capture_goes_through_the_whole_pipeline_to_undeployed(guard, tmp_path):
    arguments = ["sandbox", "--directory", str(tmp_path), "--play", str(CAPTURE), "--pace", "0.2"]
    sandbox = Process(guard, [*COMMAND, *arguments], tmp_path / "sandbox.log", BARE)
    told = tmp_path / "sandbox.json"
    sandbox.wait_until(told.exists, "says where it is")
    addresses = json.loads(told.read_text())
    daemons = [
        Process(guard, [*COMMAND, role], tmp_path / f"{role}.log", BARE | addresses["environ"])
        for role in ("producer", "consumer")
    ]
    try:
        for daemon in daemons:
            daemon.wait_until(
                lambda: [each["desiredState"] for each in records(addresses["registry"])] == ["UNDEPLOYED"],
                "one record, UNDEPLOYED",
            )
        [record] = records(addresses["registry"])
        assert record["registeredModelId"] == "1"
        assert record["name"] == "scorer/d3c5aa9f-8422-48c7-b1c0-78b32d1faf9f"
        said = sandbox.log.read_text()
        assert "create-ready-delete.jsonl: through, 10 writes" in said
        assert "played KServe is off" in said
    finally:
        for process in (*daemons, sandbox):
            process.stop()
    assert not told.exists(), "nothing is reached at these addresses any more"


def test_the_sandbox_ends_with_exit_code_0_after_a_signal(tmp_path):
    running = subprocess.Popen(
        [*COMMAND, "sandbox", "--no-broker", "--directory", str(tmp_path)], stdout=subprocess.PIPE, text=True, env=BARE
    )
    assert running.stdout is not None
    said = iter(running.stdout.readline, "")
    assert "Kubernetes API" in next(said)
    assert any("Ctrl-C ends everything" in line for line in said)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=20)
    assert running.returncode == 0
