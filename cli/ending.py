"""How a command ends: with the exit code of its work, or with one sentence on standard error and the code for that.

What can go wrong is the same for all commands; which code says so is each one's own, and stands in its `--help`.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer
from msgspec import Struct

from cli.output import abandon_what_is_left, failed, have_streams
from replay.capture import CaptureError, CutError
from shared.errors import IsvcSyncError, RefusedToStartError, SettingsError

REFUSED: Final = 2  # what typer says to wrong options, too
INTERRUPTED: Final = 130  # what a shell makes of SIGINT
_OF_NO_FILE: Final = (TimeoutError, ConnectionError)  # OSErrors of a connection


class Endings(Struct, frozen=True, kw_only=True):
    """The exit codes of a command; a file that cannot be read or written is refused like wrong options are.

    `unread`: nobody reads its output any more; nothing is said then. `unreachable`: something does not answer, or not
    as it must. `no_capture`: a file is none. `cut`: nothing is left of it.
    """

    unread: int
    unreachable: int = REFUSED
    no_capture: int = REFUSED
    cut: int = REFUSED


def guarded(command: str, endings: Endings, work: Callable[[], int]) -> int:
    """Do the work of a command; return its exit code, or say why it ends and return the code for that.

    A KeyboardInterrupt may bring its own sentence, where there is more to say than that.
    """
    have_streams()
    try:
        return work()
    except BrokenPipeError:  # an OSError, too
        return endings.unread
    except KeyboardInterrupt as error:
        # What it struck between a coroutine and its first step is no fault of the program.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        return failed(command, str(error) or "interrupted.", INTERRUPTED)
    except typer.Abort:  # Ctrl-C or Ctrl-D at a question, whose line goes on
        return failed(command, "interrupted.", INTERRUPTED, new_line=True)
    except (IsvcSyncError, OSError) as error:
        abandon_what_is_left()
        return failed(command, _sentence(error), _code(error, endings))


@contextmanager
def about(file: Path) -> Iterator[None]:
    """Let an OSError name the file that is written here: one of a write or a flush names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, _OF_NO_FILE):
            error.filename = str(file)
        raise


def _code(error: IsvcSyncError | OSError, endings: Endings) -> int:
    match error:
        case SettingsError() | RefusedToStartError():
            return REFUSED
        case CutError():
            return endings.cut
        case CaptureError():
            return endings.no_capture
        case OSError() if not isinstance(error, _OF_NO_FILE):
            return REFUSED
        case _:
            return endings.unreachable


def _sentence(error: IsvcSyncError | OSError) -> str:
    said = str(error)
    if isinstance(error, OSError):
        said = error.strerror or said or type(error).__name__  # its str() begins with its number
        said = f"{error.filename}: {said}" if error.filename else said
    return said if said.endswith((".", "?", "!")) else f"{said}."
