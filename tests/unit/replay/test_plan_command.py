"""`isvc-sync replay FILE`: what it prints, with which exit code, and that it opens no socket."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.replaying.plan import CUT, REFUSED, SHOWN, Options, run
from replay.capture import Facts, Line
from replay.files import writing
from shared.events import EventType
from tests.unit.replay.replayed import HEADER, KEY, START, captured, isvc, story
from tests.unit.replay.watchdog import WATCHDOG


@pytest.fixture
def capture(tmp_path):
    return written(tmp_path / "story.jsonl", [START, *story()])


def written(path: Path, lines: list[Line]) -> Path:
    with writing(path, HEADER) as writer:
        for line in lines:
            writer.write(line)
    return path


def rows(text: str) -> list[str]:
    return text.split("\n\n", maxsplit=1)[0].splitlines()[1:]


def steps(text: str) -> tuple[list[dict], dict]:
    *found, summary = [json.loads(line) for line in text.splitlines()]
    return found, summary["summary"]


def test_every_decision_is_shown_with_its_reason(capture, capsys):
    assert run(Options(file=capture)) == SHOWN
    shown = capsys.readouterr()
    assert shown.err == ""
    first, *_ = rows(shown.out)
    assert first.split()[:5] == ["11", "2026-11-30T10:00:00.000Z", "team-a/iris", "created", "applied"]
    assert first.endswith("no record says that this object deploys registered model 1")
    assert "create record 5: model 1, version 2, deployed" in first
    assert "the record says otherwise in modelVersionId, isvc-sync" in shown.out
    assert "5 events of 2 objects: 5 applied." in shown.out
    assert "Registry registry ends with 2 records." in shown.out


def test_json_is_a_step_a_line_and_a_summary(capture, capsys):
    assert run(Options(file=capture, output="json")) == SHOWN
    found, summary = steps(capsys.readouterr().out)
    assert [step["seq"] for step in found] == [11, 12, 13, 14, 15]
    assert found[0]["taken"][0]["kind"] == "CreateRecord"
    assert summary["results"] == {"applied": 5}
    assert summary["records"] == {"registry": 2}
    assert summary["assumed"] is False


def test_only_an_object_is_shown_and_the_others_are_decided_all_the_same(capture, capsys):
    run(Options(file=capture, only=("team-a/other",), output="json"))
    found, summary = steps(capsys.readouterr().out)
    assert [step["key"]["name"] for step in found] == ["other"]
    assert (summary["objects"], summary["records"]) == (1, {"registry": 2})


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"since": "13"}, [13, 14, 15]),
        ({"until": "12"}, [11, 12]),
        ({"since": "12", "until": "13"}, [12, 13]),
        ({"since": "2026-11-30T10:00:02Z"}, [13, 14, 15]),
        ({"until": "2026-11-30T10:00:01Z"}, [11, 12]),
    ],
)
def test_a_part_of_the_capture_is_shown_and_decided_from_what_came_before(capture, capsys, options, shown):
    assert run(Options(file=capture, output="json", **options)) == SHOWN
    found, _ = steps(capsys.readouterr().out)
    assert [step["seq"] for step in found] == shown
    assert [step["taken"][0]["kind"] for step in found if step["seq"] == 13] in ([], ["UpdateRecord"])


def test_a_cut_file_is_shown_up_to_the_cut_with_a_warning(capture, capsys):
    whole = capture.read_bytes()
    capture.write_bytes(whole[: whole.index(b'"seq":14')])
    assert run(Options(file=capture, output="json")) == CUT
    shown = capsys.readouterr()
    found, _ = steps(shown.out)
    assert [step["seq"] for step in found] == [11, 12, 13]
    assert "was cut, line 6 stops in the middle: this is the plan up to there" in " ".join(shown.err.split())


def test_a_cut_behind_the_end_that_was_asked_for_is_told_too(capture):
    whole = capture.read_bytes()
    capture.write_bytes(whole[: whole.index(b'"seq":14')])
    assert run(Options(file=capture, until="11")) == CUT


def test_a_line_in_the_middle_that_does_not_decode_is_refused_after_what_came_before(capture, capsys):
    lines = capture.read_bytes().splitlines(keepends=True)
    capture.write_bytes(b"".join([*lines[:4], b"{nonsense\n", *lines[4:]]))
    assert run(Options(file=capture, output="json")) == REFUSED
    shown = capsys.readouterr()
    assert [step["seq"] for step in steps(shown.out)[0]] == [11, 12]
    assert "line 5" in shown.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"since": "noon"}, "--from is 'noon'"),
        ({"until": "noon"}, "--until is 'noon'"),
        ({"only": ("iris",)}, "--only is 'iris': it must be NAMESPACE/NAME"),
        ({"only": ("a/b/c",)}, "--only is 'a/b/c'"),
    ],
)
def test_options_that_say_nothing_are_refused(capture, capsys, options, complaint):
    assert run(Options(file=capture, **options)) == REFUSED
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_an_object_of_which_the_capture_tells_nothing_is_named_and_exits_2(capture, capsys):
    assert run(Options(file=capture, only=("team-a/nobody", "team-a/iris"))) == REFUSED
    shown = capsys.readouterr()
    assert "story.jsonl tells nothing of team-a/nobody." in " ".join(shown.err.split())
    assert "team-a/iris" in shown.out
    assert run(Options(file=capture, only=("team-a/other",), until="12")) == REFUSED
    assert "tells nothing of team-a/other up to there." in " ".join(capsys.readouterr().err.split())


def test_an_object_whose_events_are_not_shown_is_known_all_the_same(capture):
    assert run(Options(file=capture, only=("team-a/iris",), since="4711")) == SHOWN


def test_an_object_that_was_made_again_is_one_object(tmp_path, capsys):
    again = captured(20, isvc(KEY, "u-9", 90, registered_model_id="1"), EventType.CREATED, at_s=9.0)
    path = written(tmp_path / "x", [START, *story(), again])
    run(Options(file=path))
    assert "6 events of 2 objects: 6 applied." in capsys.readouterr().out
    run(Options(file=path, output="json"))
    _, summary = steps(capsys.readouterr().out)
    assert (summary["objects"], summary["uids"]) == (2, 3)


@pytest.mark.parametrize(
    "given",
    [("--speed", "2x"), ("--step",), ("--keep",), ("--name", "x"), ("--yes-to", "http://x"), ("--cluster-id", "c")],
    ids=lambda given: given[0],
)
def test_an_option_of_playing_is_refused_where_nothing_is_played(capture, given):
    done = CliRunner().invoke(app, ["replay", str(capture), *given])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{given[0]}: these go with --to" in " ".join(done.stderr.split())


def test_what_is_no_capture_is_refused(tmp_path, capsys):
    (tmp_path / "other").write_text("hello\n")
    assert run(Options(file=tmp_path / "other")) == REFUSED
    assert run(Options(file=tmp_path / "nowhere")) == REFUSED
    assert capsys.readouterr().out == ""


def test_it_is_said_that_models_were_taken_to_exist(tmp_path, capsys):
    path = written(tmp_path / "story.jsonl", list(story()))
    assert run(Options(file=path)) == SHOWN
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "those that labels name were taken to exist" in " ".join(text.split())
    assert run(Options(file=path, strict=True)) == SHOWN
    assert "4 dead" in capsys.readouterr().out


def test_facts_in_the_middle_of_the_file_count_from_there_on(tmp_path, capsys):
    first, *others = story()
    path = written(tmp_path / "story.jsonl", [Facts(models=("7",)), first, START, *others])
    run(Options(file=path, output="json"))
    found, _ = steps(capsys.readouterr().out)
    assert [step["result"] for step in found[:2]] == ["dead", "applied"]


def test_what_a_terminal_would_obey_is_not_printed(tmp_path, capsys):
    line = next(iter(story()))
    body = line.data.replace(b'"registered-model-id"', b'"x"').replace(
        b'registered-model-id":"1"', b'registered-model-id":"\\u001b[31m\\nred"'
    )
    path = written(tmp_path / "story.jsonl", [START, type(line)(line.event, body, line.position)])
    assert run(Options(file=path)) == SHOWN
    out = capsys.readouterr().out
    assert "registered-model-id=" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("output", ["table", "json"])
def test_no_socket_is_opened(capture, output):
    script = WATCHDOG + "sys.argv = ['isvc-sync', *sys.argv[1:]]\nfrom cli.__main__ import main\nmain()"
    done = ran(script, "replay", str(capture), "-o", output)
    assert done.returncode == SHOWN, done.stderr
    assert done.stdout


def test_the_watchdog_of_the_test_above_sees_a_socket():
    assert ran(WATCHDOG + "import asyncio\nasyncio.new_event_loop()").returncode == 99


def ran(script: str, *arguments: str) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[3]
    return subprocess.run([sys.executable, "-c", script, *arguments], cwd=root, capture_output=True, check=False)
