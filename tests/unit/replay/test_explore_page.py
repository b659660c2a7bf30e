"""The commands of docs/replay-explore.md do what the page says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/replay-explore.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_exits_0(command):
    program, *arguments = shlex.split(command)
    assert program == "isvc-sync"
    ran = subprocess.run(
        [sys.executable, "-m", "cli", *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
