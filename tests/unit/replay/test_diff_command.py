"""`isvc-sync diff`: two captures, or one capture under two versions of the code."""

import json
import shutil
from pathlib import Path

import pytest

from cli.replaying.diff import CUT, DIFFERS, REFUSED, SAME, Options, command_of, run

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "captures" / "golden"
PACKAGES = ("cli", "consumer", "producer", "replay", "sandbox", "shared")


def report(capsys, **options) -> tuple[int, dict]:
    code = run(Options(output="json", **options))
    return code, json.loads(capsys.readouterr().out)


def named(found: dict) -> list[str]:
    return [each["name"] for each in found["differences"]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A checkout of the code that is about to be changed."""
    directory = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def test_the_same_capture_twice_is_the_same(capsys):
    path = GOLDEN / "rollout.jsonl"
    assert report(capsys, files=(path, path)) == (
        SAME,
        {"objects": 1, "differing": 0, "first": None, "differences": []},
    )


def test_two_captures_differ_and_the_first_divergence_is_told(capsys):
    files = (GOLDEN / "rollout.jsonl", GOLDEN / "multi-model.jsonl")
    code, found = report(capsys, files=files)
    assert code == DIFFERS
    assert found["first"] == found["differences"][0]
    assert found["objects"] == found["differing"] == 2
    run(Options(files=files))
    assert capsys.readouterr().out.startswith("First divergence: isvc/")


def test_the_same_code_in_another_process_decides_the_same(copy, capsys):
    code, found = report(capsys, files=(GOLDEN / "rejected.jsonl",), against=copy)
    assert (code, found["differences"]) == (SAME, [])
    assert found["objects"] == 6


def test_a_changed_mapping_shows_exactly_the_objects_that_it_hits(copy, capsys):
    mapping = copy / "consumer" / "observation.py"
    before = mapping.read_text()
    after = before.replace('load_failure=transition if transition in LOAD_FAILURES else ""', 'load_failure=""')
    assert after != before
    mapping.write_text(after)
    try:
        code, found = report(capsys, files=(GOLDEN / "rejected.jsonl",), against=copy)
    finally:
        mapping.write_text(before)
    assert code == DIFFERS
    assert named(found) == ["noformat"], "the only one whose model cannot be loaded"
    first = found["first"]
    assert (first["what"], first["leftValue"], first["rightValue"]) == ("result", "applied", "noop")


def test_only_an_object_is_compared(capsys):
    files = (GOLDEN / "rollout.jsonl", GOLDEN / "multi-model.jsonl")
    _, found = report(capsys, files=files, only=("iris/classifier",))
    assert named(found) == ["classifier"]


def test_a_cut_file_that_agrees_up_to_the_cut_says_so(tmp_path, capsys):
    whole = (GOLDEN / "rollout.jsonl").read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(whole[:-1]))
    assert run(Options(files=(GOLDEN / "rollout.jsonl", cut))) == CUT
    assert "nothing differs up to there" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"files": ("rollout",)}, "give two captures"),
        ({"files": ("rollout", "storm", "canary")}, "give two captures"),
        ({"files": ("rollout", "storm"), "against": ROOT}, "give one capture"),
        ({"files": ("rollout",), "against": GOLDEN}, "no checkout"),
        ({"files": ("rollout", "nowhere")}, "nowhere"),
        ({"files": ("rollout", "storm"), "only": ("iris",)}, "--only is 'iris'"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, complaint, capsys):
    files = tuple(GOLDEN / f"{name}.jsonl" for name in options["files"])
    assert run(Options(**{**options, "files": files})) == REFUSED
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_version_that_has_no_such_command_is_refused_with_its_own_words(tmp_path, capsys):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__main__.py").write_text("raise SystemExit('No such command: replay')")
    assert run(Options(files=(GOLDEN / "rollout.jsonl",), against=tmp_path)) == REFUSED
    assert "No such command: replay" in " ".join(capsys.readouterr().err.split())


BOXED = """
import os, sys
line = "No such command 'replay': " + "it was made later " * 12
width = int(os.environ.get("COLUMNS", 80)) - 4
sys.stderr.write(f"╭─ Error ─╮\\n")
for begin in range(0, len(line), width):
    sys.stderr.write(f"│ {line[begin:begin + width]:<{width}} │\\n")
sys.stderr.write("╰─────────╯\\n")
raise SystemExit(2)
"""


def test_what_a_version_says_in_a_box_is_told_without_the_box(tmp_path, capsys):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__main__.py").write_text(BOXED)
    assert run(Options(files=(GOLDEN / "rollout.jsonl",), against=tmp_path)) == REFUSED
    said = capsys.readouterr().err
    assert " ended with 2: No such command 'replay': it was made later" in " ".join(said.split())
    assert not any(sign in said for sign in "│╭╰")


def test_a_version_that_only_draws_lines_says_nothing(tmp_path, capsys):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__main__.py").write_text("raise SystemExit('───')")
    assert run(Options(files=(GOLDEN / "rollout.jsonl",), against=tmp_path)) == REFUSED
    assert "the other version ended with 1: it says nothing" in " ".join(capsys.readouterr().err.split())


def test_a_virtual_environment_is_asked_by_its_own_command(tmp_path):
    command = tmp_path / "bin" / "isvc-sync"
    command.parent.mkdir()
    command.touch()
    assert command_of(tmp_path).args == (str(command),)
