"""How commands end whose output nobody takes, and which are interrupted: by code and sentence, never by a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.app import app
from tests.eventually import eventually
from tests.unit.cli.outputs import takes_nothing

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "tests" / "captures"
ROLLOUT, STORM = CAPTURES / "golden" / "rollout.jsonl", CAPTURES / "golden" / "storm.jsonl"
FULL = "No space left on device.\n"
COMMANDS = {
    "replay": (["replay", ROLLOUT], 0),
    "replay as JSON": (["replay", STORM, "-o", "json"], 0),
    "diff of two that differ": (["diff", ROLLOUT, CAPTURES / "golden" / "multi-model.jsonl"], 1),
    "explain": (["explain", "team-a/changes", "--from", CAPTURES / "golden" / "outage.jsonl"], 0),
    "explore": (["explore", ROLLOUT, "--seeds", "1"], 0),
    "timeline": (["timeline", ROLLOUT, "-o", "made"], 0),
    "stats": (["stats", ROLLOUT], 0),
    "validate": (["validate", ROLLOUT], 0),
    "redact": (["redact", ROLLOUT, "made"], 0),
    "record": (["record", "made", "--from-watch", CAPTURES / "create-ready-delete.jsonl"], 0),
}


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def run(*arguments: object) -> int:
    """Run a command in this process; return its exit code."""
    return app(list(map(str, arguments)), standalone_mode=False)


@pytest.mark.parametrize(("arguments", "code"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_whose_output_nobody_reads_ends_in_silence(arguments, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with takes_nothing("a pipe that nobody reads", "stdout"):
        assert run(*arguments) == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("arguments", "_code"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_whose_output_cannot_be_written_says_so(arguments, _code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with takes_nothing("a full disk", "stdout"):
        assert run(*arguments) == 2
    assert capsys.readouterr().err == f"isvc-sync {arguments[0]}: {FULL}"


@pytest.mark.parametrize("arguments", [("redact", STORM), ("record", "--from-watch", CAPTURES / "storm.jsonl")])
def test_a_capture_that_cannot_be_written_is_named(arguments, tmp_path):
    made = tmp_path / "made"
    small = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (9999, 9999))\nfrom cli.__main__ import main; main()"
    command = [sys.executable, "-B", "-c", small, *map(str, arguments), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"isvc-sync {arguments[0]}: {made}: File too large.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert names(tmp_path) == []


@pytest.mark.parametrize("command", ["stats", "replay", "timeline -o made", "explore", "explain a/b --from"])
def test_a_file_that_is_not_there_is_named_without_the_number_of_the_error(command, tmp_path, capsys):
    gone = tmp_path / "gone"
    assert run(*command.split(), gone) == 2
    assert capsys.readouterr().err == f"isvc-sync {command.split()[0]}: {gone}: No such file or directory.\n"


LONG = "x" * 300  # no file system takes such a name


@pytest.mark.parametrize(
    "arguments",
    [("timeline", ROLLOUT, "-o", LONG), ("shrink", ROLLOUT, LONG), ("diff", ROLLOUT, "--against", LONG)],
    ids=["timeline", "shrink", "diff"],
)
def test_a_place_that_cannot_even_be_looked_at_is_named(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"isvc-sync {arguments[0]}: ")
    assert said.endswith(": File name too long.\n")


def code_of(*arguments: object, **streams: object) -> int:
    """Return how a process ends that buffers its output, as processes do unless told otherwise."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "cli", *map(str, arguments)]
    return subprocess.run(command, env=environ, check=False, **streams).returncode


def test_where_nobody_reads_standard_error_the_code_is_the_same(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    assert code_of("stats", tmp_path / "gone", stdout=writer, stderr=writer) == 2
    os.close(writer)


def test_where_nobody_reads_standard_output_the_code_is_the_commands_own():
    reader, writer = os.pipe()
    os.close(reader)
    assert code_of("stats", ROLLOUT, stdout=writer, stderr=subprocess.DEVNULL) == 0
    os.close(writer)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_behind_a_stream_is_the_code_of_a_refusal(stream, tmp_path):
    file = ROLLOUT if stream == "stdout" else tmp_path / "gone"
    others = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with Path("/dev/full").open("w") as full:
        assert code_of("stats", file, **(others | {stream: full})) == 2


def test_the_sandbox_ends_as_after_a_signal_when_nobody_reads_where_it_is(tmp_path, capsys):
    with takes_nothing("a pipe that nobody reads", "stdout"):
        assert run("sandbox", "--no-broker", "--directory", tmp_path) == 0
    assert capsys.readouterr().err == ""


READING = {
    "replay": (["replay"], "interrupted."),
    "diff": (["diff", ROLLOUT], "interrupted."),
    "explain": (["explain", "iris/classifier", "--from"], "interrupted."),
    "explore": (["explore"], "interrupted."),
    "timeline": (["timeline", "-o", "made"], "interrupted."),
    "stats": (["stats"], "interrupted."),
    "validate": (["validate"], "interrupted."),
    "redact": (["redact", "SOURCE", "made"], "interrupted."),
    "shrink": (["shrink", "SOURCE", "made"], "interrupted: nothing was written."),
    "record": (["record", "made", "--from-watch"], "interrupted: nothing was written."),
}


@pytest.mark.parametrize(("arguments", "sentence"), READING.values(), ids=READING)
def test_ctrl_c_while_a_file_is_read_is_told_in_one_sentence(arguments, sentence, tmp_path):
    source = tmp_path / "source"
    os.mkfifo(source)
    named = [source if each == "SOURCE" else each for each in arguments]
    with started(*named, *(() if source in named else (source,)), cwd=tmp_path) as process, source.open("wb"):
        process.send_signal(signal.SIGINT)  # it has opened the file, as we have
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, b"", f"isvc-sync {arguments[0]}: {sentence}\n".encode())
    assert not (tmp_path / "made").exists()


CUT = (
    *("replay cut", "diff cut cut", f"diff {ROLLOUT} cut", "explain a/b --from cut", "explore cut"),
    *("timeline cut -o made", "stats cut", "validate cut", "redact cut made", "redact --anonymous cut made"),
    *("shrink cut made", "replay cut --to sandbox", "record made --from-watch cut"),
)


@pytest.mark.parametrize("start", [b"", b'{"capture":"isvc-ca', b"\x28\xb5\x2f\xfd\x24"], ids=["empty", "line", "zstd"])
@pytest.mark.parametrize("command", CUT)
def test_a_file_of_which_nothing_is_left_exits_3_with_every_command(command, start, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("cut").write_bytes(start)
    assert run(*command.split()) == 3
    assert "cut" in capsys.readouterr().err
    assert not Path("made").exists()


async def test_a_recording_that_is_interrupted_says_that_its_file_can_be_read(tmp_path):
    source, made = tmp_path / "source", tmp_path / "made"
    os.mkfifo(source)
    recording = started("record", made, "--from-watch", source, cwd=tmp_path)
    with recording as process, source.open("wb", buffering=0) as watch:
        watch.write((CAPTURES / "create-ready-delete.jsonl").read_bytes())
        await eventually(lambda: made.exists() and made.stat().st_size, "the file is made")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert names(tmp_path) == ["made", "source"]
    assert said == b"isvc-sync record: interrupted: the file has no footer, and can be read up to its end.\n"


def started(*arguments: object, cwd: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cli", *map(str, arguments)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environ)
