"""Whether a file may be written that a command is to make: one check for all that make one, before any work is done."""

import stat
from pathlib import Path

from replay.placing import Beside


def in_the_way(file: Path, *, force: bool, source: Path | None = None) -> str:
    """Return a sentence when the file may not be written; `source` is read meanwhile, `-` for standard input.

    Raises OSError where it cannot be written, or not even be looked at.
    """
    try:
        found = file.stat()
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        return f"{file} is no file that can be written."
    if found is not None and source is not None and _is(source, file):
        return f"{file} cannot be written over while it is read: choose another name."
    if found is not None and not force:
        return f"{file} exists: choose another name, or --force to write over it."
    Beside(file).discard()
    return ""


def _is(source: Path, file: Path) -> bool:
    try:
        return Path("/dev/stdin" if str(source) == "-" else source).samefile(file)
    except OSError:  # there is nothing to read, as will be told
        return False
