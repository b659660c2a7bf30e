"""Capture files: whole ones, cut ones, broken ones, in each of the three forms."""

import gzip
import io
import json
import tracemalloc

import pytest
import zstandard

from replay.capture import Captured, CaptureError, CutError, Footer, encode
from replay.files import FLUSH_EVERY_BYTES, LINE_BYTES_MAX, reading, unpacked, writing
from tests.unit.replay.captures import FACTS, HEADER, at, first_event, small, write

FORMS = ["x.jsonl", "x.jsonl.gz", "x.jsonl.zst"]


def read_up_to_the_cut(path):
    """Return the lines of a file and why it ends; None for the lines where nothing can be read."""
    try:
        with reading(path) as capture:
            return list(capture), capture.cut
    except CutError as error:
        return None, error


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_read_as_it_was_written(tmp_path, form):
    write(tmp_path / form, small())
    with reading(tmp_path / form) as capture:
        assert capture.header == HEADER
        assert list(capture) == [*small(), Footer(2, 2)]
        assert capture.cut is None


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_at_any_byte_is_read_up_to_there_and_told(tmp_path, form):
    whole = write(tmp_path / form, small())
    texts = [encode(line) for line in (HEADER, *small(), Footer(2, 2))]
    cut = tmp_path / f"cut-{form}"
    most = 0
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        lines, why = read_up_to_the_cut(cut)
        if lines is None:
            assert "was cut" in str(why)
            assert most == 0, "once the header can be read, that of a longer file can be"
            continue
        # The last line end says nothing: without it, the last line is there all the same.
        assert why is not None or (form == FORMS[0] and size == len(whole) - 1)
        assert [encode(line) for line in lines] == texts[1 : 1 + len(lines)]
        assert len(lines) >= most
        most = len(lines)
    assert most >= len(small())


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_before_its_first_line_is_told_as_cut(tmp_path, form):
    whole = write(tmp_path / form, small())
    (tmp_path / form).write_bytes(whole[: 20 if form == FORMS[0] else 12])
    with pytest.raises(CutError, match="was cut"), reading(tmp_path / form):
        pass


def test_a_text_that_is_no_capture_is_told_as_such(tmp_path):
    (tmp_path / "x").write_text('{"story": "canary"}\n')
    why = "is no capture: its first line has no member `capture`"
    with pytest.raises(CaptureError, match=why) as raised, reading(tmp_path / "x"):
        pass
    assert not isinstance(raised.value, CutError)


@pytest.mark.parametrize("form", FORMS)
def test_the_file_of_a_recorder_that_is_killed_can_be_read_up_to_nearly_its_end(tmp_path, form):
    """Nothing is closed or flushed by hand: only what reached the disk counts."""
    event, count = first_event(), 3000
    size = len(encode(event))
    with writing(tmp_path / form, HEADER) as writer:
        writer.place()
        for seq in range(count):
            writer.write(at(seq + 1, event))
        (tmp_path / "left").write_bytes((tmp_path / form).read_bytes())
    with reading(tmp_path / "left") as capture:
        read = sum(isinstance(line, Captured) for line in capture)
    assert capture.cut is not None
    assert read >= count - FLUSH_EVERY_BYTES // size - 1


@pytest.mark.parametrize("form", FORMS)
def test_what_is_flushed_can_be_read_by_others(tmp_path, form):
    with writing(tmp_path / form, HEADER) as writer:
        writer.place()
        writer.write(first_event())
        writer.flush()
        (tmp_path / "left").write_bytes((tmp_path / form).read_bytes())
    with reading(tmp_path / "left") as capture:
        assert list(capture) == [first_event()]


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_leaves_what_was_there_before(tmp_path, form):
    before = write(tmp_path / form, small())

    def failing() -> None:
        with writing(tmp_path / form, HEADER) as writer:
            writer.write(first_event())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert (tmp_path / form).read_bytes() == before


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_leaves_a_file_without_footer_where_it_has_taken_its_place(tmp_path, form):
    def failing() -> None:
        with writing(tmp_path / form, HEADER) as writer:
            writer.write(first_event())
            writer.place()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with reading(tmp_path / form) as capture:
        assert list(capture) == [first_event()]
    assert capture.cut == "it ends after line 2 without a footer"


def test_several_gzip_and_zstd_frames_are_one_file(tmp_path):
    head, *rest = [encode(line) + b"\n" for line in (HEADER, *small(), Footer(2, 2))]
    (tmp_path / "a").write_bytes(gzip.compress(head) + gzip.compress(b"".join(rest)))
    (tmp_path / "b").write_bytes(zstandard.compress(head) + zstandard.compress(b"".join(rest)))
    for name in ("a", "b"):
        with reading(tmp_path / name) as capture:
            assert len(list(capture)) == len(small()) + 1
        assert capture.cut is None


def test_a_line_in_the_middle_that_does_not_decode_is_named(tmp_path):
    (tmp_path / "x").write_bytes(encode(HEADER) + b"\n{}x\n" + encode(Footer(0, 0)) + b"\n")
    with reading(tmp_path / "x") as capture, pytest.raises(CaptureError, match="x, line 2: does not decode"):
        list(capture)


def test_empty_lines_say_nothing(tmp_path):
    (tmp_path / "x").write_bytes(encode(HEADER) + b"\n\n \r\n" + encode(Footer(0, 0)) + b"\r\n")
    with reading(tmp_path / "x") as capture:
        assert list(capture) == [Footer(0, 0)]
    assert capture.cut is None


def test_a_line_of_several_megabytes_is_read(tmp_path):
    long = at(1, first_event())
    long = Captured(long.event, b'{"x":"' + b"y" * (LINE_BYTES_MAX // 2) + b'"}', long.position)
    write(tmp_path / "x", [long])
    with reading(tmp_path / "x") as capture:
        assert next(iter(capture)) == long


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_that_is_too_long_is_told_and_not_taken_for_a_cut(tmp_path, end):
    (tmp_path / "x").write_bytes(encode(HEADER) + b'\n{"x":"' + b"y" * LINE_BYTES_MAX + b'"}' + end)
    with reading(tmp_path / "x") as capture, pytest.raises(CaptureError, match="line 2: is longer than"):
        list(capture)


def test_a_line_that_is_not_known_is_written_again_as_it_is(tmp_path):
    later = b'{"weather": {"sun": 1}}'
    header = encode(HEADER)[:-1] + b',"later":1}'
    (tmp_path / "x").write_bytes(header + b"\n" + later + b"\n" + encode(FACTS) + b"\n" + encode(Footer(0, 0)) + b"\n")
    with reading(tmp_path / "x") as capture, writing(tmp_path / "y", capture.header_text) as writer:
        for line, text in capture.with_text():
            if not isinstance(line, Footer):
                writer.write_text(text, line)
    assert (tmp_path / "y").read_bytes() == (tmp_path / "x").read_bytes()


def test_memory_stays_flat_while_a_long_file_is_written_and_read(tmp_path):
    event = first_event()
    tracemalloc.start()
    try:
        with writing(tmp_path / "x.gz", HEADER) as writer:
            for seq in range(5000):
                writer.write(at(seq, event))
        with reading(tmp_path / "x.gz") as capture:
            assert sum(1 for _ in capture) == 5001
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_small_file_that_unpacks_to_much_is_unpacked_in_small_bites(tmp_path):
    packed = zstandard.ZstdCompressor(level=19).compress(bytes(200_000_000))
    (tmp_path / "x.zst").write_bytes(packed)
    tracemalloc.start()
    try:
        with unpacked(tmp_path / "x.zst") as file:
            assert len(file.read(1000)) == 1000
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 150_000_000


def test_standard_input_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("replay.files.Path", lambda _: tmp_path / "x")
    write(tmp_path / "x", small())
    with reading(tmp_path / "x") as capture:
        assert json.loads(capture.header_text)["cluster"] == "prod"
    assert io.BytesIO(b"").read() == b""
