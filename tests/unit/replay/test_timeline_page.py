"""Every command of docs/replay-timeline.md does what the page says."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "isvc-sync timeline tests/captures/golden/outage.jsonl -o outage.html": "outage.html",
    "isvc-sync timeline tests/captures/golden/outage.jsonl -o changes.html --only team-a/changes": "changes.html",
}


@pytest.mark.parametrize(("command", "page"), COMMANDS.items(), ids=list(COMMANDS))
def test_a_command_of_the_page_does_what_it_says(command, page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.exit_code == 0, done.output
    assert "team-a" in (tmp_path / page).read_text()


def test_the_page_shows_no_other_command():
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "replay-timeline.md").read_text(), re.DOTALL)
    assert [line for block in blocks for line in block.splitlines()] == list(COMMANDS)
