"""A file that is written beside its place, and takes it when it is whole: what fails leaves what was there before.

It takes its place by being renamed, so it stands in the same directory meanwhile, under a name of its own. One that is
to be read while it grows takes its place early, and goes on growing there.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_PREFIX: Final = ".isvc-sync-"
_SUFFIX: Final = ".part"
_MODE: Final = 0o666  # less what the umask takes away, as of any new file


class Beside:
    """One such file; `file` is what to write to. Raises OSError, which names the place."""

    def __init__(self, path: Path) -> None:
        self._place = Path(os.path.realpath(path))  # a link stays one
        self._beside = self._place.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        self._is_placed = False
        try:
            descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        self.file: IO[bytes] = os.fdopen(descriptor, "wb")
        with suppress(OSError):  # there is none yet, or it is somebody else's
            os.fchmod(descriptor, stat.S_IMODE(self._place.stat().st_mode))

    def place(self) -> None:
        """Take the place, of whatever is there, as it is by now; more may be written. Raises OSError."""
        if self._is_placed:
            return
        self.file.flush()
        self._beside.replace(self._place)
        self._is_placed = True

    def discard(self) -> None:
        """Leave nothing behind, unless it has taken its place."""
        with suppress(OSError):  # a full disk, which has just been told
            self.file.close()
        if not self._is_placed:
            self._beside.unlink(missing_ok=True)


@contextmanager
def beside(path: Path) -> Iterator[Beside]:
    """Write a file that takes its place at the end of the block, and never if that ends by an exception."""
    made = Beside(path)
    try:
        yield made
        made.place()
        made.file.close()
    except BaseException:
        made.discard()
        raise
