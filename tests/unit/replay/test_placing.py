"""A file that is written beside its place: what fails leaves what was there, and nothing of its own."""

import os
import stat
from pathlib import Path

import pytest

from replay.placing import Beside, beside


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def written(path: Path, text: bytes) -> None:
    with beside(path) as made:
        made.file.write(text)


def test_it_takes_its_place_when_it_is_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("before")
    with beside(path) as made:
        made.file.write(b"after")
        made.file.flush()
        assert path.read_text() == "before"
    assert (path.read_text(), names(tmp_path)) == ("after", ["x"])


@pytest.mark.parametrize("error", [OSError("a full disk"), KeyboardInterrupt()], ids=["a full disk", "Ctrl-C"])
def test_what_fails_leaves_what_was_there_and_nothing_beside_it(tmp_path, error):
    path = tmp_path / "x"
    path.write_text("before")

    def half() -> None:
        with beside(path) as made:
            made.file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        half()
    assert (path.read_text(), names(tmp_path)) == ("before", ["x"])


def test_a_disk_that_is_full_at_the_last_byte_leaves_what_was_there(tmp_path):
    path = tmp_path / "x"
    path.write_text("before")

    def full() -> None:
        with beside(path) as made, Path("/dev/full").open("wb") as device:
            made.file.write(b"what is buffered is written at the end")
            os.dup2(device.fileno(), made.file.fileno())

    with pytest.raises(OSError, match="No space left"):
        full()
    assert (path.read_text(), names(tmp_path)) == ("before", ["x"])


def test_one_that_takes_its_place_early_grows_there_and_stays(tmp_path):
    path = tmp_path / "x"

    def early() -> None:
        with beside(path) as made:
            made.file.write(b"one")
            made.place()
            assert path.read_text() == "one"
            made.file.write(b" two")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        early()
    assert (path.read_text(), names(tmp_path)) == ("one two", ["x"])


def test_a_link_stays_one(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    written(link, b"after")
    assert (link.is_symlink(), target.read_text()) == (True, "after")


def test_who_may_read_what_was_there_may_read_what_takes_its_place(tmp_path):
    path = tmp_path / "x"
    path.write_text("before")
    path.chmod(0o640)
    written(path, b"after")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_is_as_readable_as_any(tmp_path):
    (tmp_path / "any").touch()
    written(tmp_path / "x", b"")
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_place_where_nothing_can_be_written_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        Beside(tmp_path / "nowhere" / "x")
    assert caught.value.filename == str(tmp_path / "nowhere" / "x")
