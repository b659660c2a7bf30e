"""What a recording that does not come to its end leaves: what was recorded, or what was there before."""

import asyncio

import pytest

from cli.capture.recording import Options, Progress, Session, Wanted
from replay.capture import CaptureError, CutError
from replay.files import reading
from shared.errors import SettingsError, UnreachableError
from tests.unit.replay.captures import HEADER, first_event

KEEPING = [KeyboardInterrupt(), asyncio.CancelledError(), UnreachableError("nobody answers"), ConnectionResetError()]
FAILING = [
    CaptureError("no watch file"),
    CutError("nothing is left"),
    SettingsError("X is wrong"),
    OSError("a full disk"),
]


def recorded(tmp_path, error: BaseException, events: int = 1, *, follow: bool = False) -> Session:
    """Record so many events, until that happens."""
    options = Options(file=tmp_path / "x", follow=follow, force=True)
    session = Session(options, Wanted.of(options), Progress("record"))

    def work() -> None:
        with session.recorder(HEADER) as recording:
            for _ in range(events):
                recording.write(first_event())
            raise error

    with pytest.raises(type(error)):
        work()
    return session


def left(tmp_path) -> int:
    """Return how many events are in the file, which has no footer."""
    with reading(tmp_path / "x") as capture:
        lines = list(capture)
        assert capture.cut is not None
        return len(lines)


@pytest.mark.parametrize("error", KEEPING, ids=lambda error: type(error).__name__)
def test_what_was_recorded_until_somebody_ended_it_or_nobody_answered_is_left(tmp_path, error):
    assert recorded(tmp_path, error).begun
    assert left(tmp_path) == 1


@pytest.mark.parametrize("error", KEEPING, ids=lambda error: type(error).__name__)
def test_where_nothing_was_recorded_until_then_nothing_is_left(tmp_path, error):
    assert not recorded(tmp_path, error, events=0).begun
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", FAILING, ids=lambda error: type(error).__name__)
def test_what_fails_leaves_what_was_there(tmp_path, error):
    (tmp_path / "x").write_text("before")
    assert not recorded(tmp_path, error).begun
    assert (tmp_path / "x").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("error", FAILING, ids=lambda error: type(error).__name__)
def test_one_that_follows_can_be_read_from_its_first_event_on_whatever_happens(tmp_path, error):
    assert recorded(tmp_path, error, follow=True).begun
    assert left(tmp_path) == 1
