"""`--keep` and `--step`: what goes on until a person says otherwise."""

import asyncio
import os
import pty
import signal
import subprocess
import sys

import httpx
import pytest

from tests.integration.replay.commands import BARE, ended, started
from tests.unit.replay.replayed import START, end, story, write


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "story.jsonl", [START, *story(), end()])


async def lines_until(process, what: str) -> list[str]:
    lines = []
    async with asyncio.timeout(60):
        while what not in (lines or [""])[-1]:
            line = await process.stderr.readline()
            assert line, f"it ended before it said {what!r}: {lines}"
            lines.append(line.decode().rstrip())
    return lines


async def test_what_is_kept_can_be_looked_at_until_ctrl_c(capture):
    async with started(capture, "--to", "sandbox", "--keep") as process:
        said = await lines_until(process, "Running until Ctrl-C.")
        registry = next(line.split()[-1] for line in said if line.startswith("Model Registry"))
        async with httpx.AsyncClient() as client:
            found = await client.get(f"{registry}/api/model_registry/v1alpha3/inference_services")
            assert {each["name"] for each in found.json()["items"]} == {"iris/u-1", "other/u-2"}
            process.send_signal(signal.SIGINT)
            done = await ended(process)
            assert done.code == 0
            with pytest.raises(httpx.ConnectError):
                await client.get(registry)


async def test_an_end_that_differs_still_exits_1_after_ctrl_c(tmp_path):
    path = write(tmp_path / "story.jsonl", [START, *story(), end(storage_uri="s3://other")])
    async with started(path, "--to", "sandbox", "--keep") as process:
        await lines_until(process, "Running until Ctrl-C.")
        process.send_signal(signal.SIGTERM)
        assert (await ended(process)).code == 1


async def test_ctrl_c_while_it_plays_ends_everything(capture):
    async with started(capture, "--to", "sandbox", "--speed", "0.001x") as process:
        await lines_until(process, "playing")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
        assert done.code == 130
        assert "interrupted; everything that was started has ended." in done.err
        assert "Traceback" not in done.err


async def stepping(path, keys: bytes, lines: int):
    """Type `keys` into a terminal, each when the next event is shown; return how the command ended."""
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "cli", "replay", str(path), "--to", "sandbox", "--step", "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *command, env=BARE, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(theirs)
    said = []
    for key in keys:
        said += (await lines_until(process, "[Enter: let it happen"))[-1:]
        os.write(ours, bytes([key]))
    done = await ended(process)
    os.close(ours)
    assert len(said) == lines
    return said, done


async def test_each_event_is_shown_and_waits_for_enter(capture):
    said, done = await stepping(capture, b"\n" * 5, 5)
    assert done.code == 0, done.err
    assert '"events": 5' in done.out
    assert said[0].startswith("#11 2026-11-30T10:00:00.000Z isvc/team-a/iris created at 50, model 1, version 2")


async def test_ctrl_d_ends_it_there(capture):
    _, done = await stepping(capture, b"\n\x04", 2)
    assert done.code == 0, done.err
    assert '"events": 1' in done.out
