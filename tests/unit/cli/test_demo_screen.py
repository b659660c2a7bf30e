"""How the demo's table looks, on terminals of several widths."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from cli.demo.board import rows
from cli.demo.screen import Lines, table
from tests.unit.cli.demo_world import right


def drawn(width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    first, *others = rows(right().seen)
    console.print(table([replace(first, latency="12345"), *others], width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [70, 80, 91, 92, 100, 140])
def test_no_number_and_no_state_is_cut_at_any_width(width):
    heading, first, *_ = drawn(width)
    assert max(len(line.rstrip()) for line in drawn(width)) <= width
    assert first.rstrip().endswith("12345")
    assert " DEPLOYED " in first
    assert heading.split()[-1] == "ms"


@pytest.mark.parametrize(
    ("width", "url", "mode"), [(140, True, True), (100, True, True), (80, False, True), (70, False, False)]
)
def test_a_narrow_terminal_goes_without_url_and_then_without_mode(width, url, mode):
    heading = drawn(width)[0].split()
    assert ("Url" in heading, "Mode" in heading) == (url, mode)


def test_lines_tell_of_a_record_once_and_again_when_its_state_changes():
    out = io.StringIO()
    lines = Lines(Console(file=out, width=140))
    world = right().seen
    lines.show(world)
    lines.show(world)
    stopped = replace(world.records[0], desired_state="UNDEPLOYED")
    lines.show(replace(world, records=(stopped, *world.records[1:])))
    said = [line.split("] ")[1].strip() for line in out.getvalue().splitlines() if "payments/scorer" in line]
    assert said == [
        "payments/scorer: record 11 DEPLOYED, version v1",
        "payments/scorer: record 11 UNDEPLOYED, version v1",
    ]
