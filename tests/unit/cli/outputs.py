"""Outputs that take nothing: a pipe that nobody reads, and a full disk."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest


def _pipe() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", buffering=1)


def _full() -> TextIO:
    return Path("/dev/full").open("w", buffering=1)


OUTPUTS = {"a pipe that nobody reads": _pipe, "a full disk": _full}


@contextmanager
def takes_nothing(what: str, *streams: str) -> Iterator[None]:
    """Let these streams of this process (`stdout`, `stderr`) be one of OUTPUTS for the length of the block."""
    place = OUTPUTS[what]()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in streams:
                patch.setattr(sys, name, place)
            yield
    finally:
        with contextlib.suppress(OSError):  # what is left in its buffer is taken no more than before
            place.close()
