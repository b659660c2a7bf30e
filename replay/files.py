"""Capture files on disk: read line by line in flat memory, written with a footer; gzip and zstd by what the bytes say.

    with reading(path) as capture:            with writing(path, header) as writer:
        capture.header                            writer.write(line)
        for line in capture: ...
        capture.cut                           -> where the file ends without a footer, and why

A file that was cut, also in the middle of a compressed block, is read up to the cut.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol

import zstandard

from replay.capture import Captured, CaptureError, Footer, Header, Line, decode, encode

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
LINE_BYTES_MAX: Final = 8 * 1024 * 1024


class Capture:
    """An open capture: iterate once. `cut` is None until the end; then None for a whole file, else what is missing."""

    def __init__(self, name: str, lines: Iterator[bytes]) -> None:
        self.name = name
        self.cut: str | None = None
        self.events = 0
        self.last_seq = 0
        self._lines = lines
        self._number = 0
        self._last = b""
        self.header = self._first()

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines after the header. Raises CaptureError for one in the middle that does not decode."""
        for line, _ in self.with_text():
            if line is not None:
                yield line

    def with_text(self) -> Iterator[tuple[Line | None, bytes]]:
        """Yield each line with its text, also those of unknown kinds (None), for whoever writes them again."""
        ended = False
        for text in self._texts():
            try:
                line = decode(text)
            except CaptureError as error:
                if text.endswith(b"\n"):
                    raise CaptureError(f"{self.name}, line {self._number}: {error}") from error
                self.cut = f"line {self._number} stops in the middle"
                return
            if isinstance(line, Captured):
                self.events += 1
                self.last_seq = max(self.last_seq, line.position.seq)
            ended = isinstance(line, Footer)
            yield line, text
        if not ended and self.cut is None:
            self.cut = f"it ends after line {self._number} without a footer"

    def _texts(self) -> Iterator[bytes]:
        try:
            for text in self._lines:
                self._number += 1
                if text.strip():
                    yield text
        except (EOFError, zlib.error, zstandard.ZstdError, gzip.BadGzipFile) as error:
            self.cut = f"its compressed data end early after line {self._number} ({error})"

    def _first(self) -> Header:
        text = next(self._texts(), b"")
        try:
            line = decode(text) if text else None
        except CaptureError as error:
            raise CaptureError(f"{self.name}: {error}") from error
        if not isinstance(line, Header):
            raise CaptureError(f"{self.name}: is no capture: its first line has no member `capture`")
        return line


class Sink(Protocol):
    """Where a capture is written to."""

    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> object: ...


class Writer:
    """Writes lines; the footer comes with the end of `writing`, unless that ends by an exception."""

    def __init__(self, file: Sink, header: Header) -> None:
        self._file = file
        self.events = 0
        self.last_seq = 0
        self._put(encode(header))

    def write(self, line: Line) -> None:
        if isinstance(line, Captured):
            self.events += 1
            self.last_seq = max(self.last_seq, line.position.seq)
        self._put(encode(line))

    def write_text(self, text: bytes) -> None:
        """Write a line that this release does not know, as it is."""
        self._put(text.rstrip(b"\r\n"))

    def end(self) -> None:
        self._put(encode(Footer(self.events, self.last_seq)))

    def flush(self) -> None:
        self._file.flush()

    def _put(self, text: bytes) -> None:
        self._file.write(text + b"\n")


@contextmanager
def reading(path: Path) -> Iterator[Capture]:
    """Open a capture, `-` for standard input. Raises CaptureError, OSError."""
    with _opened(path) as file:
        yield Capture(str(path), iter(lambda: file.readline(LINE_BYTES_MAX), b""))


@contextmanager
def writing(path: Path, header: Header) -> Iterator[Writer]:
    """Create a capture; `.gz` and `.zst` in its name say how it is compressed. Raises OSError."""
    with _created(path) as file:
        writer = Writer(file, header)
        yield writer
        writer.end()


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with Path("/dev/stdin" if str(path) == "-" else path).open("rb") as file:
        start = file.peek(len(_ZSTD))[: len(_ZSTD)]
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield io.BufferedReader(unpacked)
        elif start == _ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as unpacked_zstd:
                yield io.BufferedReader(unpacked_zstd)
        else:
            yield file


@contextmanager
def _created(path: Path) -> Iterator[Sink]:
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                yield packed
        elif path.suffix == ".zst":
            with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed_zstd:
                yield packed_zstd
        else:
            yield file
