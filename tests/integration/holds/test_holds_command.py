"""The command that lists holds and ends them: what it says, its exit codes, and when it asks."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios

import pytest

from sandbox.broker import NatsOptions, NatsServer
from shared.objects import Kind
from tests.eventually import eventually
from tests.integration.holds.holding import Keeper, held, id_of, mortal

COMMAND = [sys.executable, "-m", "cli", "release"]
BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}


@pytest.fixture
def environ(server) -> dict[str, str]:
    return BARE | {"NATS_URL": server.url, "CLUSTER_NAME": "eu.prod"}


async def command(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, [*COMMAND, *arguments], env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def in_terminal(environ: dict[str, str], typed: bytes, *arguments: str) -> tuple[int, str]:
    """Run the command in a terminal of 80 columns; `typed` is waiting there from the beginning."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    os.write(master, typed)
    with subprocess.Popen(
        [*COMMAND, *arguments], env=environ | {"TERM": "xterm"}, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:  # that is how a terminal says that the last writer has gone
                break
    os.close(master)
    return process.returncode, shown.decode()


async def test_the_command_lists_what_is_held_and_says_so_by_its_exit_code(serve, environ):
    await serve("pod-1", producer=Keeper(held(7)), sweep=Keeper())
    done = await command(environ)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{id_of(held(7))}  producer  isvc  7 of 100  1970-01-01T00:00:00Z" in done.stdout
    assert "\x1b" not in done.stdout


async def test_nothing_held_is_exit_code_0(serve, environ):
    await serve("pod-1", producer=Keeper(), sweep=Keeper())
    done = await command(environ)
    assert (done.returncode, done.stdout) == (0, "Nothing is held. Answered: producer and sweep (pod-1).\n")


async def test_nobody_there_is_one_sentence_that_names_the_cluster_and_the_way_out(environ):
    done = await command(environ, "-o", "json")
    assert (done.returncode, done.stdout) == (3, "")
    [said] = done.stderr.splitlines()
    assert "Nobody in cluster 'eu.prod' answers on isvc.eu=2Eprod.holds" in said
    assert "give CLUSTER_NAME, SUBJECT_PREFIX and NATS_URL as the producer has them" in said


async def test_a_broker_that_is_not_there_is_one_sentence_without_credentials(environ):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        done = await command(environ | {"NATS_URL": f"nats://me:hunter2@127.0.0.1:{taken.getsockname()[1]}"})
    [said] = done.stderr.splitlines()
    assert done.returncode == 3
    assert "did not let us in within 5 s (ConnectionRefusedError: " in said
    assert "hunter2" not in said


async def test_a_missing_right_on_the_broker_is_named(environ, tmp_path):
    rights = 'authorization { users = [ {user: me, password: hunter2, permissions: {publish: "x"}} ] }'
    async with NatsServer(tmp_path / "strict", NatsOptions(extra=rights)) as strict:
        done = await command(environ | {"NATS_URL": strict.url.replace("//", "//me:hunter2@")})
        assert done.returncode == 3
        assert 'permissions violation for publish to "isvc.eu=2eprod.holds"' in done.stderr
        assert "hunter2" not in done.stderr


async def test_ctrl_c_ends_the_command_in_one_sentence(environ):
    connections: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    async with silent:
        address = f"nats://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--all", env=environ | {"NATS_URL": address}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        await eventually(lambda: connections, "the command waits for a greeting")
        process.send_signal(signal.SIGINT)
        out, said = await asyncio.wait_for(process.communicate(), 60)
        for each in connections:
            each.close()
    assert (process.returncode, out, said) == (130, b"", b"isvc-sync release: interrupted.\n")


async def test_json_lists_and_releases(serve, environ):
    keeper = Keeper(held(7), held(9, Kind.LLMISVC))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    listed = json.loads((await command(environ, "--output", "json")).stdout)
    assert {hold["id"]: hold["count"] for hold in listed["holds"]} == {
        id_of(held(7)): 7,
        id_of(held(9, Kind.LLMISVC)): 9,
    }
    done = await command(environ, "--all", "--yes", "--output", "json")
    assert done.returncode == 0
    assert {each["outcome"] for each in json.loads(done.stdout)["results"]} == {"released"}
    assert keeper.holds == []


async def test_an_id_that_is_not_held_any_more_is_told_and_the_others_that_were_named_are_released(serve, environ):
    keeper = Keeper(held(8), held(9))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    done = await command(environ, id_of(held(7)), id_of(held(8)), "--yes")
    assert done.returncode == 1
    assert f"{id_of(held(7))}: not released, nobody holds it any more" in done.stdout
    assert f"{id_of(held(8))}: released" in done.stdout
    assert keeper.holds == [held(9)]


async def test_while_a_part_is_silent_nothing_shown_is_exit_code_3(serve, environ):
    await serve("pod-2", sweep=Keeper())
    done = await command(environ)
    assert (done.returncode, "No answer from the producer" in done.stdout) == (3, True)
    assert "Nothing is held" not in done.stdout


async def test_while_a_part_is_silent_what_the_others_hold_is_exit_code_1(serve, environ):
    await serve("pod-2", sweep=Keeper(held(7)))
    done = await command(environ)
    assert (done.returncode, "No answer from the producer" in done.stdout) == (1, True)


async def test_an_id_that_a_silent_part_may_hold_is_not_said_to_be_held_by_nobody(serve, environ):
    await serve("pod-2", sweep=Keeper())
    done = await command(environ, id_of(held(7)), "--yes")
    assert (done.returncode, "nobody holds it" in done.stdout) == (3, False)
    assert f"{id_of(held(7))}: not known whether it is held or released" in done.stdout
    assert "No answer from the producer" in done.stdout
    found = json.loads((await command(environ, id_of(held(7)), "--yes", "-o", "json")).stdout)
    assert found == {"results": [{"id": id_of(held(7)), "outcome": "unknown"}], "silent": ["producer"]}


async def test_a_holder_that_hangs_leaves_the_outcome_open(server, serve, environ):
    hanging = await mortal(server, "released")
    await serve("pod-2", sweep=Keeper())
    hanging.send_signal(signal.SIGSTOP)
    try:
        done = await command(environ, id_of(held(7)), "--yes")
    finally:
        hanging.kill()
        await hanging.wait()
    assert (done.returncode, "not known whether it is held or released" in done.stdout) == (3, True)


@pytest.mark.parametrize("shown", [0, 1])
async def test_a_release_of_all_is_not_done_while_a_part_is_silent(serve, environ, shown):
    keeper = Keeper(*[held(7)] * shown)
    await serve("pod-2", sweep=keeper)
    done = await command(environ, "--all", "--yes")
    assert (done.returncode, keeper.holds, "No answer from the producer" in done.stdout) == (3, [], True)


async def test_an_id_that_its_holder_has_released_is_done_whoever_else_is_silent(serve, environ):
    await serve("pod-2", sweep=Keeper(held(7)))
    done = await command(environ, id_of(held(7), "sweep"), "--yes")
    assert (done.returncode, ": released" in done.stdout) == (0, True)


async def test_where_nobody_can_be_asked_nothing_is_released_without_yes(serve, environ):
    keeper = Keeper(held(7))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    done = await command(environ, "--all")
    assert (done.returncode, "add --yes" in done.stderr, keeper.holds) == (2, True, [held(7)])


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [(b"y\n", 0, ": released"), (b"\n", 1, "nothing was released"), (b"\x04", 130, "interrupted")],
    ids=["yes", "no is the default", "end of input"],
)
async def test_a_person_is_shown_the_hold_and_asked(serve, environ, typed, code, said):
    keeper = Keeper(held(7))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    ended, shown = await asyncio.to_thread(in_terminal, environ, typed, id_of(held(7)))
    assert ended == code
    assert "7 of 100" in shown
    assert "Release 7 deletes of InferenceService? [y/N]" in shown
    assert said in shown
    assert keeper.holds == ([] if code == 0 else [held(7)])
