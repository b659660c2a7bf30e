"""`isvc-sync`: the one command, also as `python -m cli`.

The two daemons take the short way: without options they start without the command line's libraries.
"""

import sys


def main() -> None:
    """Run the command that the arguments name; ends with its exit code."""
    if sys.argv[1:] in (["producer"], ["consumer"]):
        from cli.daemons import run  # noqa: PLC0415 - `isvc-sync version` needs neither daemon

        sys.exit(run(sys.argv[1]))
    from cli.app import app  # noqa: PLC0415 - a daemon needs no typer

    app()


if __name__ == "__main__":
    main()
