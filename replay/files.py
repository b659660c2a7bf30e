"""Capture files on disk: read line by line in flat memory, written with a footer; gzip and zstd by what the bytes say.

    with reading(path) as capture:            with writing(path, header) as writer:
        capture.header                            writer.write(line)
        for line in capture: ...
        capture.cut                           -> where the file ends without a footer, and why

A file that was cut, also in the middle of a compressed block, is read up to the cut. What is written takes its place at
the end, and not at all if that fails (`placing.py`); with `writer.place()` it does so earlier. The writer ends a
compressed block now and then (`flush`): the file of a recorder that was killed can be read up to nearly its end.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Protocol

import zstandard

from replay.capture import Captured, CaptureError, CutError, Footer, Header, Line, decode, encode
from replay.placing import beside

LINE_BYTES_MAX: Final = 8 * 1024 * 1024
FLUSH_EVERY_BYTES: Final = 256 * 1024  # uncompressed: what a kill may cost, about a hundred events; 1 % of the size
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_PACKED_READ_BYTES: Final = 4096  # a small bite may be a thousand times as large when it is unpacked
_FIRST_MEMBER: Final = b'{"capture"'
BROKEN: Final = (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile)
"""What reading compressed data raises where these stop in the middle, or are none."""


class Capture:
    """An open capture: iterate once. `cut` is None until the end; then None for a whole file, else what is missing."""

    def __init__(self, name: str, lines: Iterator[bytes]) -> None:
        self.name = name
        self.cut: str | None = None
        self.events = 0
        self.last_seq = 0
        self.number = 0  # of the line that was read last
        self._lines = lines
        self.header, self.header_text = self._first()

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines after the header. Raises CaptureError for one in the middle that does not decode."""
        for line, _ in self.with_text():
            if line is not None:
                yield line

    def with_text(self) -> Iterator[tuple[Line | None, bytes]]:
        """Yield each line with its text, also those of unknown kinds (None), for whoever writes them again."""
        for text, line in self.attempts():
            if isinstance(line, CaptureError):
                raise CaptureError(f"{self.name}, line {self.number}: {line}") from line
            yield line, text

    def attempts(self) -> Iterator[tuple[bytes, Line | CaptureError | None]]:
        """Yield each text with what it says, or with why it does not decode, for whoever goes on after that."""
        ended = False
        for text in self._texts():
            line = _attempt(text)
            if isinstance(line, CaptureError) and not text.endswith(b"\n") and len(text) < LINE_BYTES_MAX:
                self.cut = f"line {self.number} stops in the middle"
                return
            if isinstance(line, Captured):
                self.events += 1
                self.last_seq = max(self.last_seq, line.position.seq)
            ended = isinstance(line, Footer)
            yield text, line
        if not ended and self.cut is None:
            self.cut = f"it ends after line {self.number} without a footer"

    def _texts(self) -> Iterator[bytes]:
        try:
            for text in self._lines:
                self.number += 1
                if text.strip():
                    yield text
        except BROKEN as error:
            self.cut = f"its compressed data end early after line {self.number} ({error})"

    def _first(self) -> tuple[Header, bytes]:
        text = next(self._texts(), b"")
        if self.cut is not None or not text:
            raise CutError(f"{self.name}: it is empty, or was cut before its first line: {self.cut or 'no byte'}")
        line = _attempt(text)
        if isinstance(line, CaptureError) and not text.endswith(b"\n") and _begins_header(text):
            raise CutError(f"{self.name}: it was cut in the middle of its first line, nothing of it can be read")
        if isinstance(line, CaptureError):
            raise CaptureError(f"{self.name}: {line}") from line
        if not isinstance(line, Header):
            raise CaptureError(f"{self.name}: is no capture: its first line has no member `capture`")
        return line, text


class Unpacked(Protocol):
    """What a capture is read from."""

    def read(self, size: int = -1, /) -> bytes: ...
    def readline(self, size: int = -1, /) -> bytes: ...


class Sink(Protocol):
    """Where a capture is written to."""

    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> object: ...


class Writer:
    """Writes lines; the footer comes with the end of `writing`, unless that ends by an exception."""

    def __init__(self, file: Sink, header: Header | bytes, place: Callable[[], None]) -> None:
        self._file = file
        self._place = place
        self._unflushed = 0
        self.events = 0
        self.last_seq = 0
        self._put(header if isinstance(header, bytes) else encode(header))
        self.flush()

    def write(self, line: Line) -> None:
        self.write_text(encode(line), line)

    def write_text(self, text: bytes, line: Line | None) -> None:
        """Write a text as it is, unknown members and all; `line` is what it says."""
        if isinstance(line, Captured):
            self.events += 1
            self.last_seq = max(self.last_seq, line.position.seq)
        self._put(text)

    def end(self) -> None:
        """Write the footer; what comes before it does not share its fate, should the file lose its last bytes."""
        self.flush()
        self._put(encode(Footer(self.events, self.last_seq)))

    def place(self) -> None:
        """Let the file take its place now, as far as it is: what comes is written there. Raises OSError."""
        self.flush()
        self._place()

    def flush(self) -> None:
        """Make sure that a reader gets what was written so far, whatever becomes of this process."""
        self._file.flush()
        self._unflushed = 0

    def _put(self, text: bytes) -> None:
        self._file.write(text.rstrip(b"\r\n") + b"\n")
        self._unflushed += len(text)
        if self._unflushed >= FLUSH_EVERY_BYTES:
            self.flush()


@contextmanager
def reading(path: Path) -> Iterator[Capture]:
    """Open a capture, `-` for standard input.

    Raises CaptureError, CutError for one of which nothing is left, OSError.
    """
    with unpacked(path) as file:
        yield Capture(str(path), lines_of(file))


@contextmanager
def writing(path: Path, header: Header | bytes, *, footer: bool = True) -> Iterator[Writer]:
    """Create a capture; `.gz` and `.zst` in its name say how it is compressed. Raises OSError.

    It takes its place at the end of the block; if that ends by an exception, what was there before stays.
    `header` may be the text of another capture's, to keep what this release does not know. Without `footer` that is
    left to the caller: a file that was made of a cut one is one, too.
    """
    with beside(path) as made, _packing(path.suffix, made.file) as file:
        writer = Writer(file, header, made.place)
        yield writer
        if footer:
            writer.end()


def lines_of(file: Unpacked, bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Yield lines with their ends; one that is longer than `bytes_max` is yielded in parts."""
    return iter(lambda: file.readline(bytes_max), b"")


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """Open a file, `-` for standard input, and unpack it where its first bytes say gzip or zstd. Raises OSError."""
    with Path("/dev/stdin" if str(path) == "-" else path).open("rb") as file:
        start = file.peek(len(_ZSTD))[: len(_ZSTD)]
        if start and (_GZIP.startswith(start) or start.startswith(_GZIP)):
            with gzip.GzipFile(fileobj=file) as gunzipped:
                yield gunzipped  # buffered by itself; a second buffer would lose what comes before a cut
        elif start and _ZSTD.startswith(start):
            yield io.BufferedReader(_Unzstd(file))
        else:
            yield file


@contextmanager
def _packing(suffix: str, file: IO[bytes]) -> Iterator[Sink]:
    if suffix == ".gz":
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            yield packed
    elif suffix == ".zst":
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed_zstd:
            yield packed_zstd
    else:
        yield file


class _Unzstd(io.RawIOBase):
    """Unpacks zstd frames. Unlike zstandard's own reader it says so when the last one was cut."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = True
        self._left = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready and self._more():
            pass
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _more(self) -> bool:
        """Unpack a bite; whether there was one. Raises EOFError in the middle of a frame."""
        bite = self._left or self._packed.read(_PACKED_READ_BYTES)
        if not bite:
            if self._in_frame:
                raise EOFError("the last frame is not complete")
            return False
        if not self._in_frame:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(self._frame.decompress(bite))
        self._left, self._in_frame = self._frame.unused_data, not self._frame.eof
        return True


def _attempt(text: bytes) -> Line | CaptureError | None:
    if len(text) >= LINE_BYTES_MAX and not text.endswith(b"\n"):
        return CaptureError(f"is longer than {LINE_BYTES_MAX} bytes")
    try:
        return decode(text)
    except CaptureError as error:
        return error


def _begins_header(text: bytes) -> bool:
    return text.startswith(_FIRST_MEMBER) or _FIRST_MEMBER.startswith(text)
