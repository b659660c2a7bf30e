"""Each place that the table of rules in `docs/producer.md` names for a rule has a test with the rule's number."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNIT = ("items", "inventory", "checkpoint", "namespaces", "audit", "guard", "hearing", "reflector", "scope")
SCRIPTED = ("refusals", "lists", "limits")
FAMILIES = {
    "watch": "tests/unit/producer/test_producer_watch*.py",
    "end_to_end": "tests/integration/producer/test_producer_end_to_end*.py",
    "chaos": "tests/cluster/test_chaos_*.py",
    "cluster_config": "tests/integration/cluster_config/test_cluster_config.py",
    "test_producer_memory.py": "tests/unit/producer/test_producer_memory.py",
}
FAMILIES |= {name: f"tests/unit/producer/test_producer_{name}.py" for name in UNIT}
FAMILIES |= {name: f"tests/integration/producer/test_producer_scripted_{name}.py" for name in SCRIPTED}
ROW = re.compile(r"^\| (R[0-9R, ]+) \|.*\| ([^|]+) \|$", re.MULTILINE)


def claims():
    for rules, places in ROW.findall((ROOT / "docs" / "producer.md").read_text()):
        for place in re.sub(r"\(.*?\)\)?|[*`]", "", places).split(","):
            for rule in rules.split(", "):
                yield pytest.param(int(rule[1:]), place.strip(), id=f"{rule} {place.strip()}")


@pytest.mark.parametrize(("rule", "place"), list(claims()))
def test_a_rule_has_its_tests_where_the_table_says(rule, place):
    if place.startswith("pytest -k"):
        assert f"R{rule}" in place
        return
    files = list(ROOT.glob(FAMILIES.get(place, f"tests/integration/producer/test_producer_{place}.py")))
    numbered = [path for path in files if re.search(rf"def test_(R\d\d_)*R{rule:02}_", path.read_text())]
    assert numbered, f"no test_R{rule:02}_* in {place}"
