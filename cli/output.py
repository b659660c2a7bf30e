"""Standard output, for commands that have more to do at their end than to stop writing."""

import contextlib
import io
import logging
import os
import sys
from typing import IO, Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

_PLAIN_WIDTH: Final = 1000  # a file has no edge: a sentence is a line


class Nowhere(io.StringIO):
    """Takes everything and keeps nothing."""

    def write(self, text: str, /) -> int:
        return len(text)


class Output(Console):
    """A console that raises BrokenPipeError when nobody reads it any more (`isvc-sync demo | head`).

    Rich's own answer, SystemExit in the middle of an event loop, would end it with a traceback.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        abandon(self.file)
        raise BrokenPipeError("nobody reads the output any more")


def abandon_what_is_left() -> None:
    """Let go of the standard output where it takes no more, a full disk, say."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon(sys.stdout)


def abandon(stream: IO[str]) -> None:
    """Let what could not be written go nowhere: Python tries again at its exit, and would end with 120 then."""
    with contextlib.suppress(OSError, ValueError):  # it has no descriptor, or is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def silence_logs() -> None:
    """Log nothing: what goes wrong in a command is told by its one sentence."""
    logging.getLogger().setLevel(logging.CRITICAL)


def console(*, stderr: bool = False) -> Console:
    """Return a console for what a command shows: on a terminal as wide as that, in a file without edge and colours."""
    found = Output(highlight=False, stderr=stderr)
    return found if found.is_terminal else Output(highlight=False, stderr=stderr, no_color=True, width=_PLAIN_WIDTH)


def write_json(document: Any) -> None:
    """Write a document for programs."""
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    Output(soft_wrap=True).print(Text(text))


def failed(command: str, sentence: str, code: int, *, new_line: bool = False) -> int:
    """Say why a command ends, and return its exit code; `new_line` where the cursor stands behind a question."""
    console = Output(stderr=True, soft_wrap=True)
    said = f"isvc-sync {command}: {sentence}"
    try:
        console.print(Text(f"\n{said}" if new_line else said))
    except OSError:  # nobody reads it, or it cannot be written: the code still says it
        abandon(console.file)
    return code


def many(count: int, one: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def have_streams() -> None:
    """Let a process that was started without standard output or error (`>&-`) write to nobody."""
    sys.stdout = sys.stdout or Nowhere()
    sys.stderr = sys.stderr or Nowhere()


def can_ask() -> bool:
    """Whether somebody can be asked here; a process may also have been started without any standard input."""
    return sys.stdin is not None and sys.stdin.isatty()
