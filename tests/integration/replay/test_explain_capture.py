"""`isvc-sync explain --from FILE`: what is shown, and its exit codes."""

import json
import logging
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from cli.app import app
from cli.replaying.explain import Options, run
from replay.capture import Facts, Position
from shared.events import EventType
from shared.objects import Kind
from tests.unit.replay import replayed
from tests.unit.replay.replayed import KEY, START, captured, isvc, write

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _logs():
    """Commands silence all logging of their process, which here is not theirs."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture
def capture(tmp_path) -> Path:
    return write(tmp_path / "story.jsonl", [START, *replayed.story(), replayed.end()])


@pytest.fixture
def unread(tmp_path) -> Path:
    """Return a capture that does not tell what the registry held, as one of kubectl's output."""
    return write(tmp_path / "unread.jsonl", [START, *replayed.story()])


def explained(file: Path, name: str = "team-a/iris", **options: str) -> int:
    return run(Options(name=name, file=file, **options), {})


def test_the_life_of_a_deleted_object_is_shown_and_agrees(capture, capsys):
    assert explained(capture) == 0
    shown = capsys.readouterr()
    first, *below = shown.out.splitlines()
    assert first.startswith("team-a/iris is gone; its record")
    assert first.endswith("is UNDEPLOYED, version 3, and up to date.")
    assert any("=> create record" in line for line in below)
    assert any("label model-version-id 2 -> 3" in line for line in below)
    assert ("\x1b" in shown.out, shown.err) == (False, "")


def test_the_command_of_the_page_shows_what_the_page_shows(monkeypatch):
    page = (ROOT / "docs" / "replay-explain.md").read_text()
    command, shown = re.search(
        r"```console\n(isvc-sync explain .* --from .*)\n```\n\n```\n(.*?)```", page, re.DOTALL
    ).groups()
    assert command == "isvc-sync explain team-a/changes --from tests/captures/golden/outage.jsonl"
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, command.split()[1:])
    assert (done.exit_code, done.stdout.split()) == (0, shown.split()), "wherever lines are broken"


def test_programs_are_told_the_same(capture, capsys):
    assert explained(capture, output="json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["key"] == {"kind": "isvc", "namespace": "team-a", "name": "iris"}
    [section] = found["sections"]
    assert [moment["type"] for moment in section["moments"]] == ["created", "updated", "updated", "deleted"]
    assert section["moments"][0]["decided"][0]["kind"] == "CreateRecord"


def test_an_object_that_the_capture_does_not_have_is_exit_code_1(capture, capsys):
    assert explained(capture, "team-a/nobody") == 1
    assert "because the capture has no event of an isvc of that name" in capsys.readouterr().out


def test_of_another_kind_there_is_none(capture):
    assert explained(capture, kind="llmisvc") == 1


def test_where_nobody_looked_at_the_registry_it_would_be_there_and_is_exit_code_3(unread, capsys):
    assert explained(unread) == 3
    shown = capsys.readouterr().out
    first = " ".join(shown.split("\n\n")[0].split())
    assert first.startswith("team-a/iris is gone; its record")
    assert "would be UNDEPLOYED, version 3, and up to date" in first
    assert first.endswith(" (planned: the capture does not tell what the registry held).")
    assert "\n  Planned " in shown
    assert "\n  Record " not in shown


@pytest.mark.parametrize(("name", "is_planned"), [("capture", False), ("unread", True)])
def test_programs_are_told_whether_anybody_looked_at_the_registry(name, is_planned, request, capsys):
    explained(request.getfixturevalue(name), output="json")
    found = json.loads(capsys.readouterr().out)
    assert found["planned"] is is_planned
    assert {record["planned"] for each in found["sections"] for record in each["records"]} == {is_planned}


def test_what_is_wrong_whatever_the_registry_held_is_exit_code_1(tmp_path, capsys):
    asks = captured(1, isvc(KEY, "u-iris", 11, registered_model_id="9"), EventType.CREATED, models=("9",))
    assert explained(write(tmp_path / "x", [Facts(absent_models=("9",)), asks])) == 1
    said = capsys.readouterr().out
    assert said.startswith("team-a/iris would not be in the registry, because registered model 9 does not exist in the")


def test_an_object_without_a_label_needs_no_registry_to_agree_with(tmp_path, capsys):
    bare = captured(1, isvc(KEY, "u-iris", 11), EventType.CREATED, models=())
    assert explained(write(tmp_path / "x", [bare])) == 0
    assert "planned" not in capsys.readouterr().out


def test_of_two_kinds_of_a_name_one_is_shown_and_the_other_named(tmp_path, capsys):
    first = captured(1, isvc(KEY, "u-1", 11, registered_model_id="1"), EventType.CREATED)
    event = replace(first.event, key=replace(KEY, kind=Kind.LLMISVC), uid="u-2")
    body = first.data.replace(b'"u-1"', b'"u-2"').replace(b'"InferenceService"', b'"LLMInferenceService"')
    other = replace(first, event=event, data=body, position=Position(2))
    both = write(tmp_path / "both", [START, first, other, Facts(at="end")])
    explained(both)
    said = "this is the isvc; there is an llmisvc of that name, too: --kind llmisvc shows it."
    assert said in " ".join(capsys.readouterr().err.split())
    for kind in ("isvc", "llmisvc"):
        explained(both, kind=kind)
        assert "of that name, too" not in capsys.readouterr().err


def test_a_cut_file_is_told_as_far_as_it_goes_and_is_exit_code_3(capture, capsys):
    lines = capture.read_bytes().splitlines(keepends=True)
    capture.write_bytes(b"".join(lines[:-3]))
    assert explained(capture) == 3
    shown = capsys.readouterr()
    assert shown.out.startswith("team-a/iris would be in the registry as record")
    assert "was cut" in shown.err


@pytest.mark.parametrize(("name", "words"), [("iris", "is not NAMESPACE/NAME"), ("a/b/c", "is not NAMESPACE/NAME")])
def test_a_name_that_is_none_is_exit_code_2(capture, capsys, name, words):
    assert explained(capture, name) == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_no_capture_or_not_there_is_exit_code_2(tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    other.write_text('{"kind": "List"}\n')
    assert explained(other) == 2
    assert "is no capture" in capsys.readouterr().err
    assert explained(tmp_path / "none.jsonl") == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_where_models_are_assumed_it_says_so(tmp_path, capsys):
    explained(write(tmp_path / "bare.jsonl", replayed.story()))
    assert "those that labels name were taken to exist" in capsys.readouterr().err
