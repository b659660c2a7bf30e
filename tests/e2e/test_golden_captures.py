"""Every golden capture is decided as its plan says, and ends in the records that its story asks for.

A plan that changes is shown as a diff, with the command that accepts it. What is right for the recorded watch streams
stands in tests/captures/expected/, which was written from the stories before any plan was made.
"""

import difflib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from replay.capture import Captured, Facts
from replay.files import reading
from replay.planning import Planner
from tests.captures.contents import of_facts, of_registry
from tests.captures.make_golden import EXPECTED, GOLDEN, WATCHED, plan_of

CAPTURES = sorted(GOLDEN.glob("*.jsonl"))
ACCEPT = "python -m tests.captures.make_golden --plans"


def name(path: Path) -> str:
    return path.stem


def test_there_are_enough_of_them_and_each_has_a_plan():
    assert len(CAPTURES) >= 20
    assert {path.stem for path in GOLDEN.glob("*.plan")} == {path.stem for path in CAPTURES}
    assert {path.stem for path in CAPTURES} >= set(WATCHED)


@pytest.mark.parametrize("path", CAPTURES, ids=name)
def test_a_golden_capture_is_decided_as_its_plan_says(path):
    accepted, now = path.with_suffix(".plan").read_text().splitlines(), plan_of(path).splitlines()
    changes = list(difflib.unified_diff(accepted, now, "accepted", "now", lineterm="", n=1))
    assert not changes, "\n".join([f"the plan of {path.name} has changed", *changes, f"to accept it: {ACCEPT}"])


@pytest.mark.parametrize("story", WATCHED)
def test_the_plan_of_a_story_ends_in_the_records_that_the_story_asks_for(story):
    planner, uids = decided(GOLDEN / f"{story}.jsonl")
    wanted = tomllib.loads((EXPECTED / f"{story}.toml").read_text())["objects"]
    seen = [(name, records_of(planner, uid)) for uid, name in uids.items()]
    assert sorted(seen, key=order) == sorted(
        ((thing["name"], [completed(record) for record in thing.get("records", ())]) for thing in wanted), key=order
    )


@pytest.mark.parametrize("story", WATCHED)
def test_the_plan_of_a_story_ends_with_its_dead_letters(story):
    planner, _ = decided(GOLDEN / f"{story}.jsonl")
    wanted = tomllib.loads((EXPECTED / f"{story}.toml").read_text())["objects"]
    reasons = {f"{key.namespace}/{key.name}": reason for key, reason in planner.dead_letters.items()}
    words = {thing["name"]: thing["dead"] for thing in wanted if thing.get("dead")}
    assert reasons.keys() == words.keys()
    assert all(words[each] in reason for each, reason in reasons.items())


@pytest.mark.parametrize("path", [path for path in CAPTURES if path.stem not in WATCHED], ids=name)
def test_the_plan_of_a_lived_story_ends_in_the_records_that_it_was_lived_with(path):
    planner, _ = decided(path)
    with reading(path) as capture:
        ends = [line for line in capture if isinstance(line, Facts) and line.at == "end"]
    assert ends
    for end in ends:
        assert of_registry(planner.registry(end.registry)) == of_facts([end])


def decided(path: Path) -> tuple[Planner, dict[str, str]]:
    """Return the planner after a capture, and the name of each uid, in the order of their births."""
    uids: dict[str, str] = {}
    with reading(path) as capture:
        planner = Planner(capture.header, strict=True)
        for line in capture:
            if isinstance(line, Facts):
                planner.facts(line)
            elif isinstance(line, Captured):
                uids.setdefault(line.event.uid, f"{line.event.key.namespace}/{line.event.key.name}")
                planner.decide(line)
        planner.end()
    assert capture.cut is None
    return planner, uids


def records_of(planner: Planner, uid: str) -> list[dict[str, Any]]:
    """Return what the registry says of an object, in the words of the expected ends."""
    found = []
    for record in planner.registry("registry").records():
        if not record.external_id.startswith(f"kserve:{uid}/"):
            continue
        stamp = json.loads(record.properties["isvc-sync"]["string_value"])
        found.append(
            {
                "model": record.model_id,
                "state": "DEPLOYED" if record.deployed else "UNDEPLOYED",
                "version": record.version_id,
                "history": [change["version"] for change in stamp["history"]],
                "url": record.url,
                "runtime": record.runtime,
                "failure": stamp["loadFailure"],
            }
        )
    return sorted(found, key=lambda record: record["model"])


def completed(record: dict[str, Any]) -> dict[str, Any]:
    defaults = {"version": "", "history": [], "url": "", "runtime": "", "failure": ""}
    return defaults | record


def order(entry: tuple[str, list[dict[str, Any]]]) -> tuple[str, str]:
    return entry[0], json.dumps(entry[1], sort_keys=True)
