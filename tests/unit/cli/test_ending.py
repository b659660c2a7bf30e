"""How commands end: which error is told with which exit code, and that it is one sentence."""

import errno
import gc
import sys
from pathlib import Path

import pytest
import typer

from cli.ending import Endings, about, guarded
from cli.output import can_ask, failed
from replay.capture import CaptureError, CutError
from shared.errors import PermanentError, RefusedToStartError, SettingsError, UnreachableError
from tests.unit.cli.outputs import OUTPUTS, takes_nothing

ENDINGS = Endings(unread=10, unreachable=11, no_capture=12, cut=13)


def ended(error: BaseException, endings: Endings = ENDINGS) -> int:
    def work() -> int:
        raise error

    return guarded("probe", endings, work)


def test_work_that_ends_by_itself_gives_its_code_and_nothing_is_said(capsys):
    assert guarded("probe", ENDINGS, lambda: 7) == 7
    assert capsys.readouterr() == ("", "")


TOLD = {
    "a setting": (SettingsError("CLUSTER_NAME is not set."), 2, "CLUSTER_NAME is not set."),
    "another world": (RefusedToStartError("consumers run: stop them."), 2, "consumers run: stop them."),
    "no answer": (UnreachableError("nobody answers."), 11, "nobody answers."),
    "a no for ever": (PermanentError("it says 400."), 11, "it says 400."),
    "no capture": (CaptureError("x: is no capture"), 12, "x: is no capture."),
    "a capture of which nothing is left": (CutError("x: was cut"), 13, "x: was cut."),
    "a file": (FileNotFoundError(errno.ENOENT, "No such file", "x"), 2, "x: No such file."),
    "a file without a name": (OSError(errno.ENOSPC, "No space left"), 2, "No space left."),
    "an OSError of words": (OSError("the device is gone"), 2, "the device is gone."),
    "a timeout": (TimeoutError(), 11, "TimeoutError."),
    "a timeout of words": (TimeoutError("nats: timeout"), 11, "nats: timeout."),
    "a connection": (ConnectionResetError(errno.ECONNRESET, "Connection reset"), 11, "Connection reset."),
    "Ctrl-C": (KeyboardInterrupt(), 130, "interrupted."),
    "Ctrl-C with more to say": (KeyboardInterrupt("interrupted: half is done."), 130, "interrupted: half is done."),
}


@pytest.mark.parametrize(("error", "code", "sentence"), TOLD.values(), ids=TOLD)
def test_each_error_has_its_code_and_is_told_in_one_sentence(error, code, sentence, capsys):
    assert ended(error) == code
    assert capsys.readouterr() == ("", f"isvc-sync probe: {sentence}\n")


def test_a_file_is_refused_like_an_option_where_a_command_has_no_code_of_its_own_for_it():
    endings = Endings(unread=0)
    assert {ended(error, endings) for error in (CaptureError(), CutError(), OSError(), UnreachableError(""))} == {2}


@pytest.mark.parametrize("error", [BrokenPipeError(), BrokenPipeError(errno.EPIPE, "Broken pipe")])
def test_nothing_is_said_when_nobody_reads_any_more(error, capsys):
    assert ended(error) == 10
    assert capsys.readouterr() == ("", "")


def test_a_coroutine_that_ctrl_c_has_kept_from_its_first_step_is_not_complained_of(capsys, recwarn):
    async def step() -> None: ...

    def work() -> int:
        begun = step()
        assert begun is not None
        raise KeyboardInterrupt

    assert guarded("probe", ENDINGS, work) == 130
    gc.collect()
    assert (capsys.readouterr().err, list(recwarn)) == ("isvc-sync probe: interrupted.\n", [])


def test_ctrl_c_at_a_question_is_told_on_a_line_of_its_own(capsys):
    sys.stderr.write("Repair 3? [y/N]: ")
    assert ended(typer.Abort()) == 130
    assert capsys.readouterr().err == "Repair 3? [y/N]: \nisvc-sync probe: interrupted.\n"


def test_a_fault_of_ours_is_not_hidden():
    with pytest.raises(AssertionError):
        ended(AssertionError("a fault"))


def test_a_write_that_fails_names_the_file_that_is_written(tmp_path, capsys):
    def work() -> int:
        with about(tmp_path / "x"), Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"a line")
        return 0

    assert guarded("probe", ENDINGS, work) == 2
    assert capsys.readouterr().err == f"isvc-sync probe: {tmp_path / 'x'}: No space left on device.\n"


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "y"), ConnectionResetError(errno.ECONNRESET, "reset")]
)
def test_what_is_about_something_else_does_not_name_the_file_that_is_written(error):
    before = error.filename
    with pytest.raises(type(error)), about(Path("x")):
        raise error
    assert error.filename == before


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_code_is_right_where_the_sentence_cannot_be_said(output):
    with takes_nothing(output, "stdout", "stderr"):  # both: rich turns stdout to /dev/null
        assert failed("probe", "a sentence.", 7) == 7


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_process_without_an_output_works_and_ends_with_its_code(name, monkeypatch):
    monkeypatch.setattr(sys, name, None)  # as `>&-` leaves it

    def work() -> int:
        sys.stdout.write("shown")
        return failed("probe", "a sentence.", 7)

    assert guarded("probe", ENDINGS, work) == 7


def test_nobody_can_be_asked_where_there_is_no_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as `<&-` leaves it
    assert not can_ask()
