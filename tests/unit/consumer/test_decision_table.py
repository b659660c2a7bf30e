"""Every situation has its decision, and docs/reconcile.md shows just these: neither the table nor the list can rot."""

import re
from pathlib import Path

import pytest

from tests.unit.consumer.situations import SECTIONS, decided, in_words, table

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reconcile.md").read_text()
DEFECTS = [f"D{number:02}" for number in range(1, 31)]
PLACES = {
    "decision": ("tests/unit/consumer/test_plan_defects.py",),
    "loop": (
        "tests/integration/consumer/test_defects.py",
        "tests/integration/consumer/test_defects_registries.py",
        "tests/integration/consumer/test_situations.py",
    ),
}


def between(name: str) -> str:
    found = re.search(rf"<!-- {name}: begin.*?-->\n(.*?)\n<!-- {name}: end -->", PAGE, re.DOTALL)
    assert found, f"the page has no part {name}"
    return found[1].strip()


@pytest.mark.parametrize(
    "situation", [pytest.param(each, id=each.words) for each in (s for part in SECTIONS.values() for s in part)]
)
def test_the_situation(situation):
    assert tuple(in_words(action) for action in decided(situation)) == situation.actions


def test_the_page_shows_what_is_decided():
    assert between("decisions") == table()


def rows() -> dict[str, set[str]]:
    """Return the tests that the page names, by defect."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in between("defects").splitlines()[2:]]
    return {defect: set(re.findall(r"`(test_\w+)`", tests)) for defect, _, _, tests in cells}


def defect_tests(kind: str) -> dict[str, set[str]]:
    """Return the tests that there are, by defect."""
    names = [name for file in PLACES[kind] for name in re.findall(r"def (test_D\d\d_\w+)", (ROOT / file).read_text())]
    return {defect: {name for name in names if name.startswith(f"test_{defect}_")} for defect in DEFECTS}


def test_each_defect_has_a_row_that_names_all_its_tests_and_no_other():
    decisions, loops = defect_tests("decision"), defect_tests("loop")
    assert rows() == {defect: decisions[defect] | loops[defect] for defect in DEFECTS}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_has_a_test_of_the_decision_and_one_of_the_loop(defect, kind):
    assert defect_tests(kind)[defect]
