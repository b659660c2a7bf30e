"""Standard output, for commands that have more to do at their end than to stop writing."""

from rich.console import Console


class Output(Console):
    """A console that raises BrokenPipeError when nobody reads it any more (`isvc-sync demo | head`).

    Rich's own answer, SystemExit in the middle of an event loop, would end it with a traceback.
    """

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()
        except SystemExit as ending:
            raise BrokenPipeError("nobody reads the output any more") from ending
