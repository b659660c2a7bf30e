"""Whether a file may be written, before any work is done: the same answer for all commands that make one."""

import os
import sys
from pathlib import Path

import pytest

from cli.app import app
from cli.writable import in_the_way

ROOT = Path(__file__).parents[3]
STORM = ROOT / "tests" / "captures" / "storm.jsonl"
GOLDEN = ROOT / "tests" / "captures" / "golden" / "storm.jsonl"
MAKING = {
    "record": ("record", "IT", "--from-watch", "IT"),
    "redact": ("redact", "IT", "IT"),
    "shrink": ("shrink", "IT", "IT"),
    "timeline": ("timeline", "IT", "-o", "IT"),
}


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def run(*arguments: object) -> int:
    return app(list(map(str, arguments)), standalone_mode=False)


@pytest.mark.parametrize("arguments", MAKING.values(), ids=MAKING)
@pytest.mark.parametrize("other", [False, True], ids=["itself", "by another name"])
def test_no_command_writes_over_the_file_that_it_reads(arguments, other, tmp_path, capsys):
    source = tmp_path / "source"
    source.write_bytes(STORM.read_bytes() if arguments[0] == "record" else GOLDEN.read_bytes())
    before, into = source.read_bytes(), source
    if other:
        into = tmp_path / "other"
        into.symlink_to(source)
    names = iter((into, source) if arguments[0] == "record" else (source, into))
    assert run(*(next(names) if each == "IT" else each for each in arguments), "--force") == 2
    assert source.read_bytes() == before
    sentence = f"{into} cannot be written over while it is read: choose another name."
    assert capsys.readouterr().err == f"isvc-sync {arguments[0]}: {sentence}\n"


def test_standard_input_is_not_written_over_while_it_is_read(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.write_text("{}")
    with source.open("rb") as file:
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            assert "while it is read" in in_the_way(source, force=True, source=Path("-"))
        finally:
            os.dup2(before, 0)
            os.close(before)
    assert in_the_way(source, force=True, source=tmp_path / "gone") == ""


@pytest.mark.parametrize("arguments", [("redact", GOLDEN), ("shrink", GOLDEN), ("timeline", GOLDEN, "-o")])
@pytest.mark.parametrize("into", ["nowhere/made", "file/made", "/proc/made"])
def test_where_nothing_can_be_written_is_told_before_any_work(arguments, into, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("replay.files.unpacked", lambda _path: sys.exit("it began to read"))
    assert run(*arguments, into) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"isvc-sync {arguments[0]}: {into}: ")
    assert names(tmp_path) == ["file"]


def test_what_is_no_file_is_not_written(tmp_path):
    assert in_the_way(tmp_path, force=True) == f"{tmp_path} is no file that can be written."


def test_looking_leaves_nothing_behind(tmp_path):
    assert in_the_way(tmp_path / "x", force=False) == ""
    assert names(tmp_path) == []
