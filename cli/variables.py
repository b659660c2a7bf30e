"""`isvc-sync producer --help`: the options, and every environment variable that the process reads."""

from typing import Any

from rich.console import Console
from rich.table import Table
from typer.core import TyperCommand

from cli.daemons import settings_of
from shared.settings import Row, describe


class DaemonCommand(TyperCommand):
    """A command whose help ends with the table of its variables; made only when it is asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        assert self.name is not None, "a command of an application has a name"
        Console().print(variables(describe(settings_of(self.name))))


def variables(rows: tuple[Row, ...]) -> Table:
    """Return the table; what must be set comes first."""
    table = Table("Variable", "Default", "Meaning", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.title, table.title_justify, table.title_style = "Environment variables", "left", "bold"
    for row in sorted(rows, key=lambda each: each.default is not None):
        default = "[yellow]required[/]" if row.default is None else row.default
        table.add_row(f"[cyan]{row.variable}[/]", default, f"{row.description} ({row.type})".replace("[", r"\["))
    table.columns[0].no_wrap = True
    table.columns[1].max_width = 28
    return table
