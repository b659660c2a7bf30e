"""`isvc-sync explore` and `isvc-sync shrink`: what they show, with which exit code, and that the commands repeat it."""

import json
import shlex
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.replaying import explore, shrink
from replay.capture import Action, Captured, Facts
from replay.exploring.explorer import Explorer
from replay.files import reading
from tests.unit.cli.outputs import takes_nothing
from tests.unit.replay.explored import FACTS, GOLDEN, busy, with_a_seen_set
from tests.unit.replay.replayed import write
from tests.unit.replay.watchdog import WATCHDOG

FAILING = 8  # the seeds in which a busy consumer with a seen-set fails at least once


@pytest.fixture
def capture(tmp_path):
    return write(tmp_path / "busy.jsonl", [FACTS, *busy(6, 6)])


def explored(capsys, file, **options) -> tuple[int, dict]:
    code = explore.run(explore.Options(file=file, output="json", **options))
    return code, json.loads(capsys.readouterr().out)


def test_a_capture_that_ends_as_planned_exits_0_and_says_what_struck(capture, capsys):
    code, said = explored(capsys, capture, seeds=20, workers=3)
    assert code == explore.SAME
    assert (said["events"], said["objects"], said["seeds"], said["failing"]) == (36, 6, 20, 0)
    assert said["struck"]["worker killed"] > 0


def test_the_table_says_it_in_words(capture, capsys):
    assert explore.run(explore.Options(file=capture, seeds=2)) == explore.SAME
    assert capsys.readouterr().out.endswith("The registry ended as planned every time.\n")


def test_a_failing_seed_exits_1_and_is_shown_with_the_command_that_repeats_it(capture, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    code, said = explored(capsys, capture, seeds=FAILING)
    assert code == explore.DIFFERS
    first = said["findings"][0]
    assert first["command"] == f"isvc-sync explore {capture} --seed {first['seed']} --seeds 1 --workers 4"
    code, again = explored(capsys, capture, seed=first["seed"], seeds=1)
    assert (code, again["findings"]) == (explore.DIFFERS, [first])


def test_the_table_shows_the_command_and_what_differs(capture, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    assert explore.run(explore.Options(file=capture, seeds=FAILING)) == explore.DIFFERS
    shown = capsys.readouterr().out
    assert f"isvc-sync explore {capture} --seed " in shown
    assert "record registry team-" in shown


def test_a_file_name_is_quoted_in_the_command(tmp_path):
    command = explore.command_of(tmp_path / "my capture.jsonl", 17, 4)
    assert shlex.split(command)[2] == str(tmp_path / "my capture.jsonl")


def test_a_cut_file_that_ends_as_planned_exits_3(capture, capsys):
    capture.write_bytes(b"".join(capture.read_bytes().splitlines(keepends=True)[:-1]))
    assert explore.run(explore.Options(file=capture, seeds=1)) == explore.CUT
    assert "was cut" in capsys.readouterr().err


def test_what_is_no_capture_exits_2(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("no capture\n")
    assert explore.run(explore.Options(file=tmp_path / "notes.txt")) == explore.REFUSED
    assert "notes.txt" in capsys.readouterr().err


def test_exploring_opens_no_socket(capture):
    code = WATCHDOG + "from cli.__main__ import main\nsys.argv[0] = 'isvc-sync'\nmain()\n"
    ran = subprocess.run(
        [sys.executable, "-c", code, "explore", str(capture), "--seeds", "2"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, "as planned every time" in ran.stdout) == (0, True), ran.stderr


# shrink


def shrunk(capsys, file, into, **options) -> tuple[int, dict]:
    code = shrink.run(shrink.Options(file=file, into=into, output="json", **options))
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {"err": said.err}


def test_the_small_capture_fails_with_the_command_that_is_shown(capture, tmp_path, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    into = tmp_path / "small.jsonl"
    code, said = shrunk(capsys, capture, into)
    assert code == shrink.SHRUNK
    assert said["events"] <= 2
    seed = int(shlex.split(said["command"])[4])
    assert explored(capsys, into, seed=seed, seeds=1)[0] == explore.DIFFERS


def test_its_lines_are_those_of_the_capture(tmp_path, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    action = Action(event=1, object="isvc/team-0/model-0", kind="CreateRecord", status=201)
    end = Facts(at="end", models=("1",))
    file = write(tmp_path / "busy.jsonl", [FACTS, *busy(6, 6), action, end])
    lines = file.read_bytes().splitlines()
    lines[2] = lines[2].replace(b'{"specversion"', b'{"newer":true,"specversion"')
    file.write_bytes(b"\n".join(lines) + b"\n")
    into = tmp_path / "small.jsonl"
    assert shrunk(capsys, file, into)[0] == shrink.SHRUNK
    *kept, footer = into.read_bytes().splitlines()
    assert {line for line in kept if b'"facts"' not in line} <= set(lines)
    with reading(into) as small:
        kinds = [type(line) for line in small]
        assert small.cut is None
    assert set(kinds[:-1]) == {Facts, Captured}
    assert b'"footer"' in footer


def test_of_the_facts_those_are_left_that_the_events_can_ask_for(tmp_path, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    one_by_one = [Facts(versions={version: model}) for version, model in FACTS.versions.items()]
    unknown = Facts(environments={f"team-{number}": str(50 + number) for number in range(3)})
    file = write(tmp_path / "busy.jsonl", [Facts(models=FACTS.models), *one_by_one, unknown, *busy(6, 6)])
    file.write_bytes(file.read_bytes().replace(b'{"facts":{"env', b'{"newer":1,"facts":{"newest":2,"env'))
    into = tmp_path / "small.jsonl"
    assert shrunk(capsys, file, into)[0] == shrink.SHRUNK
    with reading(into) as small:
        left = list(small.with_text())
    named = {str(line.event.key.namespace) for line, _ in left if isinstance(line, Captured)}
    facts = [(line, text) for line, text in left if isinstance(line, Facts)]
    assert {name for line, _ in facts for name in line.environments} == named
    assert {model for line, _ in facts for model in line.models} == {"1"}
    assert len(facts) < len(one_by_one)
    assert b'{"newer":1,"facts":{"newest":2,' in facts[-1][1], "what this release does not know stays"


def test_where_the_failure_needs_all_facts_all_are_left(capture, tmp_path, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    real = Explorer.explore
    monkeypatch.setattr(Explorer, "explore", lambda self, seed: real(self, seed) if self.story.facts == whole else None)
    with reading(capture) as opened:
        whole = tuple(line for line in opened if isinstance(line, Facts))
    into = tmp_path / "small.jsonl"
    assert shrunk(capsys, capture, into)[0] == shrink.SHRUNK
    with reading(into) as small:
        assert tuple(line for line in small if isinstance(line, Facts)) == whole


def test_where_no_seed_fails_up_to_a_cut_it_exits_3(capture, tmp_path, capsys):
    capture.write_bytes(capture.read_bytes()[:-200])
    code, said = shrunk(capsys, capture, tmp_path / "small.jsonl", seeds=1)
    assert (code, "none of 1 seeds from 0 on fails" in said["err"]) == (3, True)
    assert not (tmp_path / "small.jsonl").exists()


def test_a_capture_is_shrunk_also_when_nobody_reads_that_it_is(capture, tmp_path, capsys, monkeypatch):
    with_a_seen_set(monkeypatch)
    into = tmp_path / "small.jsonl"
    with takes_nothing("a pipe that nobody reads", "stdout"):
        assert shrink.run(shrink.Options(file=capture, into=into)) == shrink.SHRUNK
    assert into.exists()
    assert "Traceback" not in capsys.readouterr().err


def test_what_does_not_fail_exits_1_and_writes_nothing(capture, tmp_path, capsys):
    code, said = shrunk(capsys, capture, tmp_path / "small.jsonl", seeds=3)
    assert (code, (tmp_path / "small.jsonl").exists()) == (shrink.HOLDS, False)
    assert "none of 3 seeds" in said["err"]


@pytest.mark.parametrize("name", ["busy.jsonl", "there.jsonl"])
def test_no_file_is_written_over(capture, tmp_path, capsys, name):
    (tmp_path / "there.jsonl").write_text("precious")
    before = (tmp_path / name).read_bytes()
    assert shrunk(capsys, capture, tmp_path / name)[0] == shrink.REFUSED
    assert (tmp_path / name).read_bytes() == before


def test_the_command_line_names_the_new_file_with_o(capture, tmp_path, monkeypatch):
    with_a_seen_set(monkeypatch)
    into = tmp_path / "small.jsonl"
    done = CliRunner().invoke(app, ["shrink", str(capture), str(into), "-o", "json", "--workers", "2"])
    assert (done.exit_code, into.exists()) == (shrink.SHRUNK, True)
    assert json.loads(done.stdout)["command"].endswith("--workers 2")


def test_a_long_capture_is_shrunk_to_two_events(tmp_path, capsys, monkeypatch, record_property):
    file = write(tmp_path / "large.jsonl", [FACTS, *busy(50, 20)])
    with_a_seen_set(monkeypatch)
    began_s = time.process_time()
    code, said = shrunk(capsys, file, tmp_path / "small.jsonl")
    assert code == shrink.SHRUNK
    assert (said["eventsBefore"], said["events"] <= 2) == (1000, True)
    record_property("figures", f"1,000 events to {said['events']} in {time.process_time() - began_s:.1f} s")


def test_a_recorded_life_is_explored_with_the_command_line():
    ran = subprocess.run(
        [sys.executable, "-m", "cli", "explore", str(GOLDEN / "rollout.jsonl"), "--seeds", "3", "-o", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, json.loads(ran.stdout)["failing"]) == (0, 0)
