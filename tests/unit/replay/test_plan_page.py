"""Every command of docs/replay-plan.md does what the page says."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app

ROOT = Path(__file__).parents[3]
SHOWN, DIFFERS, SAME = 0, 1, 0
COMMANDS = {
    "isvc-sync replay tests/captures/golden/rollout.jsonl": (SHOWN, "create record 42: model 2, version 1"),
    "isvc-sync replay tests/captures/golden/outage.jsonl --only team-a/changes --from 23": (SHOWN, "version 103"),
    "isvc-sync replay tests/captures/golden/outage.jsonl --until 2026-12-01T05:13:26Z -o json": (SHOWN, '"summary"'),
    "isvc-sync diff tests/captures/golden/outage.jsonl tests/captures/golden/takeover.jsonl": (DIFFERS, "First"),
    "isvc-sync diff tests/captures/golden/storm.jsonl --against ../isvc-sync-next": (SAME, "are the same"),
}


@pytest.mark.parametrize(("command", "end"), COMMANDS.items(), ids=list(COMMANDS))
def test_a_command_of_the_page_does_what_it_says(command, end, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, command.replace("../isvc-sync-next", ".").split()[1:])
    assert (done.exit_code, end[1] in done.stdout) == (end[0], True), done.output


def test_the_page_shows_no_other_command():
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "replay-plan.md").read_text(), re.DOTALL)
    assert [line for block in blocks for line in block.splitlines()] == list(COMMANDS)
