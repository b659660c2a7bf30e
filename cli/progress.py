"""What a command is doing, for whoever waits: a line on standard error, which no program reads."""

from rich.text import Text

from cli.output import console


def tell(command: str, sentence: str) -> None:
    """Say what is going on."""
    console(stderr=True).print(Text(f"isvc-sync {command}: {sentence}", "bright_black"))
