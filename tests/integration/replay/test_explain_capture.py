"""`isvc-sync explain --from FILE`: what is shown, and its exit codes."""

import json
import logging
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.replaying.explain import Options, run
from tests.unit.replay import replayed
from tests.unit.replay.replayed import START, write

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _logs():
    """Commands silence all logging of their process, which here is not theirs."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture
def capture(tmp_path) -> Path:
    return write(tmp_path / "story.jsonl", [START, *replayed.story()])


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


def test_a_cut_file_is_told_as_far_as_it_goes_and_is_exit_code_3(capture, capsys):
    lines = capture.read_bytes().splitlines(keepends=True)
    capture.write_bytes(b"".join(lines[:-2]))
    assert explained(capture) == 3
    shown = capsys.readouterr()
    assert shown.out.startswith("team-a/iris is in the registry as record")
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
