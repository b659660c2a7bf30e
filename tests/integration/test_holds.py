"""Holds over a real nats-server: several holders, one that dies, nobody at all; and the command that ends them."""

import asyncio
import fcntl
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sandbox.broker import NatsOptions, NatsServer
from shared.broker import Broker, BrokerSettings
from shared.errors import PermanentError
from shared.holds import PARTS, Held, HoldClient, HoldServer, Outcome, Part, Patience, hold_of
from shared.objects import Kind, ObjectKey
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects
from tests.eventually import eventually

SUBJECTS = Subjects("isvc", "eu.prod", 16)
CLUSTER_ID = "1b4e28ba"
COMMAND = [sys.executable, "-m", "cli", "release"]
BARE = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
# A holder that answers, and is killed by what it is asked next: in the middle of that answer.
MORTAL = """
import asyncio, os, signal, sys
from shared.broker import Broker, BrokerSettings
from shared.holds import HoldServer
from tests.integration.test_holds import CLUSTER_ID, SUBJECTS, held

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, when):
    async with Broker(BrokerSettings(nats_url=(url,)), on_closed=die) as broker:
        async with HoldServer(broker, SUBJECTS, CLUSTER_ID, "mortal") as server:
            server.register("producer", die if when == "asked" else lambda: [held(7)], die)
            await broker.client.flush()
            print("ready", flush=True)
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


def held(count: int, kind: Kind = Kind.ISVC, why: str = "too many are gone", since_s: float = 0) -> Held:
    objects = frozenset((ObjectKey(kind, "ns", f"o{number}"), f"u{number}") for number in range(count))
    return Held(kind=kind, why=why, objects=objects, known=100, since_s=since_s)


class Keeper:
    """Holds what it is given until it is released."""

    def __init__(self, *holds: Held) -> None:
        self.holds = list(holds)

    def release(self, one: Held) -> bool:
        self.holds.remove(one)
        return True


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path) as running:
        yield running


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Broker]:
    async with Broker(BrokerSettings(nats_url=(server.url,)), on_closed=lambda: None) as broker:
        yield broker


@pytest.fixture
async def broker(server):
    async with connected(server) as connection:
        yield connection


@pytest.fixture
async def serve(server):
    """Start a process's worth of answers: `await serve("name", producer=Keeper(...))`."""
    async with AsyncExitStack() as stack:

        async def start(name: str, **keepers: Keeper) -> Broker:
            connection = await stack.enter_async_context(connected(server))
            answering = HoldServer(connection, SUBJECTS, CLUSTER_ID, name)
            for part, keeper in keepers.items():
                answering.register(part, lambda keeper=keeper: keeper.holds, keeper.release)
            await stack.enter_async_context(answering)
            await connection.client.flush()
            return connection

        yield start


@pytest.fixture
def holders(broker) -> HoldClient:
    """Waits long for answers that will come: both parts speak, or the release is decided."""
    return HoldClient(broker, SUBJECTS, Patience(within_s=15, quiet_s=0.05))


@pytest.fixture
def hasty(broker) -> HoldClient:
    """For answers that will not come."""
    return HoldClient(broker, SUBJECTS, Patience(within_s=1.5, quiet_s=0.05))


def id_of(one: Held, part: Part = "producer") -> str:
    return hold_of(one, part, CLUSTER_ID).id


# --- the id ---------------------------------------------------------------------------------------------------------


def test_the_id_of_a_hold_is_the_same_in_every_process():
    objects = b'[["isvc/ns/o0","u0"],["isvc/ns/o1","u1"],["isvc/ns/o2","u2"]]'
    identity = b'["1b4e28ba","producer","isvc","too many are gone",' + objects + b"]"
    assert id_of(held(3)) == hashlib.sha256(identity).hexdigest()[:12] == "a56318baa773"


def test_an_id_does_not_change_with_age_scope_or_what_else_is_known():
    one = held(3)
    other = Held(kind=one.kind, why=one.why, objects=one.objects, known=7, since_s=9, scope=("ns",))
    assert id_of(other) == id_of(one)


def test_an_id_changes_with_every_object_the_reason_the_kind_the_holder_and_the_cluster():
    one = held(3)
    reborn = (one.objects - {(ObjectKey(Kind.ISVC, "ns", "o1"), "u1")}) | {(ObjectKey(Kind.ISVC, "ns", "o1"), "u9")}
    ids = {
        id_of(one),
        id_of(held(4)),
        id_of(Held(kind=one.kind, why=one.why, objects=reborn, known=100, since_s=0)),
        id_of(held(3, why="nothing is left")),
        id_of(held(3, kind=Kind.LLMISVC)),
        id_of(one, "sweep"),
        hold_of(one, "producer", "another").id,
    }
    assert len(ids) == 7


def test_what_is_still_held_keeps_its_age_and_what_has_changed_begins_anew():
    assert held(3, since_s=20).continued(held(3, since_s=10)).since_s == 10
    assert held(4, since_s=20).continued(held(3, since_s=10)).since_s == 20
    assert held(3, since_s=20).continued(None).since_s == 20


def test_a_long_scope_is_cut_and_an_empty_one_is_everything():
    def scope(*names: str) -> str:
        return hold_of(
            Held(kind=Kind.ISVC, why="", objects=frozenset(), known=0, since_s=0, scope=names), "sweep", ""
        ).scope

    assert [scope(), scope("a"), scope("a", "b")] == ["all namespaces", "namespace a", "namespaces a, b"]
    assert scope(*"abcdefgh") == "namespaces a, b, c, d, e and 3 more"


# --- over the broker ------------------------------------------------------------------------------------------------


async def test_every_holder_answers_also_one_that_holds_nothing(serve, holders):
    await serve("pod-1", producer=Keeper(held(7), held(9, Kind.LLMISVC)))
    await serve("pod-2", sweep=Keeper())
    answers = {answer.holder: answer for answer in await holders.ask()}
    assert [(hold.kind, hold.count) for hold in answers["pod-1"].holds] == [(Kind.ISVC, 7), (Kind.LLMISVC, 9)]
    assert (answers["pod-2"].parts, answers["pod-2"].holds) == (("sweep",), ())
    assert {answer.cluster_id for answer in answers.values()} == {CLUSTER_ID}


async def test_a_release_ends_that_hold_and_no_other(serve, holders):
    first, second = Keeper(held(7), held(9, Kind.LLMISVC)), Keeper(held(7))
    await serve("pod-1", producer=first)
    await serve("pod-2", sweep=second)
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.RELEASED
    assert (first.holds, second.holds) == ([held(9, Kind.LLMISVC)], [held(7)])


async def test_what_has_changed_since_it_was_shown_is_not_released(serve, holders):
    keeper = Keeper(held(7))
    await serve("pod-1", producer=keeper, sweep=Keeper())
    [answer] = await holders.ask()
    keeper.holds = [held(8)]
    assert await holders.release(answer.holds[0].id, ("pod-1",)) is Outcome.CHANGED
    assert keeper.holds == [held(8)]


async def test_a_holder_that_declines_has_not_released(serve, holders):
    keeper = Keeper(held(7))
    keeper.release = lambda _: False
    await serve("pod-1", producer=keeper)
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.CHANGED


async def test_a_new_leader_that_holds_the_same_may_be_the_one_that_releases_it(serve, holders):
    await serve("successor", producer=Keeper(held(7)))
    assert await holders.release(id_of(held(7)), ("predecessor",)) is Outcome.RELEASED


async def test_nobody_there_is_known_at_once(broker):
    patient = HoldClient(broker, SUBJECTS, Patience(within_s=60))
    async with asyncio.timeout(5):
        assert await patient.ask() == ()
        assert await patient.release(id_of(held(7)), ("pod-1",)) is Outcome.UNKNOWN


async def mortal(server: NatsServer, when: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MORTAL, server.url, when, stdout=asyncio.subprocess.PIPE
    )
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_a_holder_that_dies_in_mid_answer_leaves_those_of_the_others(server, serve, hasty):
    dying = await mortal(server, "asked")
    await serve("pod-2", sweep=Keeper(held(9)))
    assert [answer.holder for answer in await hasty.ask()] == ["pod-2"]
    assert await dying.wait() == -signal.SIGKILL


async def test_a_holder_that_dies_while_it_releases_leaves_the_outcome_open(server, serve, holders, hasty):
    dying = await mortal(server, "released")
    await serve("pod-2", sweep=Keeper())
    shown = {hold.id: answer.holder for answer in await holders.ask() for hold in answer.holds}
    assert shown == {id_of(held(7)): "mortal"}
    assert await hasty.release(id_of(held(7)), ("mortal",)) is Outcome.UNKNOWN
    assert await dying.wait() == -signal.SIGKILL


async def test_a_fault_in_a_holder_is_told_and_the_next_question_is_answered(serve, holders, hasty):
    keeper, told = Keeper(), []
    (await serve("pod-1", producer=keeper, sweep=Keeper())).on_event(told.append)
    keeper.holds = None
    assert await hasty.ask() == ()
    await eventually(lambda: told == ["TypeError"])
    keeper.holds = [held(7)]
    [answer] = await holders.ask()
    assert [hold.count for hold in answer.holds] == [7]


async def test_an_answer_that_cannot_be_read_is_an_error_and_not_silence(broker, holders):
    async def answer(message) -> None:
        await broker.client.publish(message.reply, b'{"holder": "x"}')

    await broker.client.subscribe(SUBJECTS.holds(), cb=answer)
    with pytest.raises(PermanentError, match="use the isvc-sync of the version that runs"):
        await holders.ask()


async def test_holders_answer_again_after_the_broker_was_killed(server, broker, serve, hasty):
    await serve("pod-1", producer=Keeper(held(7)), sweep=Keeper())
    await server.kill()
    await server.start()

    async def answered() -> bool:
        return broker.client.is_connected and len(await hasty.ask()) == 1

    await eventually(answered)


async def test_who_stopped_answers_no_more(broker, holders):
    answering = HoldServer(broker, SUBJECTS, CLUSTER_ID, "pod-1")
    for part in PARTS:
        answering.register(part, list, lambda _: True)
    async with answering:
        assert len(await holders.ask()) == 1
    assert await holders.ask() == ()


@pytest.mark.parametrize("broken", ["frozen", "killed", "closed for good"])
async def test_stopping_waits_for_no_broker(server, broken):
    async with connected(server) as broker:
        async with HoldServer(broker, SUBJECTS, CLUSTER_ID, "pod-1") as answering:
            answering.register("producer", list, lambda _: True)
            if broken == "frozen":
                server.pause()
            elif broken == "killed":
                await server.kill()
                await eventually(lambda: not broker.client.is_connected)
            else:
                await broker.client.close()
            async with asyncio.timeout(1):
                await answering.stop()
        if broken == "frozen":
            server.resume()


async def test_questions_and_releases_are_stored_in_no_stream(server, broker, serve, holders):
    await ensure_streams(broker.jetstream, BrokerSettings(nats_url=(server.url,), stream_max_bytes=2**26))
    await serve("pod-1", producer=Keeper(held(7)), sweep=Keeper())
    assert len(await holders.ask()) == 1
    assert await holders.release(id_of(held(7)), ("pod-1",)) is Outcome.RELEASED
    names = stream_names("isvc")
    for name in (names.events, names.dlq, names.lease):
        assert (await broker.jetstream.stream_info(name)).state.messages == 0


async def test_another_cluster_on_the_same_broker_is_not_asked(broker, serve):
    await serve("pod-1", producer=Keeper(held(7)))
    other = HoldClient(broker, Subjects("isvc", "eu", 16), Patience(within_s=0.5))
    assert await other.ask() == ()


# --- the command ----------------------------------------------------------------------------------------------------


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


async def test_a_broker_that_is_not_there_is_one_sentence_without_credentials(environ, unused_tcp_port):
    done = await command(environ | {"NATS_URL": f"nats://me:hunter2@127.0.0.1:{unused_tcp_port}"})
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
