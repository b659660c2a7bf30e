"""What a write would cost in each recorded state of real objects, judged by hand in tests/captures/expected/costs/."""

import tomllib
from collections import Counter

import msgspec
import pytest

from consumer.writeback import KServeLists, Target, WriteBackForm, WriteCost, cost_of
from shared.objects import ReducedObject
from shared.reduce import reduce_object
from tests.unit.shared.captured import CAPTURES, watch_events

COSTS = CAPTURES / "expected" / "costs"
STORIES = sorted(path.stem for path in COSTS.glob("*.toml"))
KEY = "modelregistry.kubeflow.org/inference-service-id"
LABEL = Target(KEY, WriteBackForm.LABEL)
ANNOTATION = Target(KEY, WriteBackForm.ANNOTATION)
LISTED = Target(KEY, WriteBackForm.ANNOTATION, KServeLists(annotations=frozenset({KEY})))


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cost: WriteCost
    text: str


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One watch event: whose, its resourceVersion, and why a write costs what it does."""

    object: str
    version: str
    why: str
    listed: bool = False


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    events: tuple[Judged, ...]
    reasons: dict[str, Reason]


def judged(name: str) -> Story:
    return msgspec.convert(tomllib.loads((COSTS / f"{name}.toml").read_text()), Story)


def states(name: str) -> list[ReducedObject]:
    return [msgspec.convert(reduce_object(raw), ReducedObject) for _, raw in watch_events(name)]


def disagreements(name: str, target: Target, listed: tuple[bool, ...] = (False, True)) -> list[str]:
    """Return where `cost_of` says otherwise, among the states in which the key was `listed`, or was not, or both."""
    story = judged(name)
    wrong = []
    for line, obj in zip(story.events, states(name), strict=True):
        reason = story.reasons[line.why]
        wanted = WriteCost.FREE if target is LISTED else reason.cost
        if line.listed in listed and cost_of(obj, target) is not wanted:
            wrong.append(f"{line.object}@{line.version} costs {cost_of(obj, target)}, not {wanted}: {reason.text}")
    return wrong


@pytest.mark.parametrize("name", STORIES)
def test_every_event_of_the_story_is_judged_once_and_in_order(name):
    lines = [(line.object, line.version) for line in judged(name).events]
    assert lines == [(obj.metadata.name, obj.metadata.resource_version) for obj in states(name)]


@pytest.mark.parametrize("name", STORIES)
def test_a_label_costs_what_was_judged(name):
    assert disagreements(name, LABEL) == []


@pytest.mark.parametrize("name", STORIES)
def test_an_annotation_that_is_not_listed_costs_what_a_label_does(name):
    assert disagreements(name, ANNOTATION, (False,)) == []


def test_an_annotation_that_is_listed_is_free_in_every_state():
    assert sum(line.listed for line in judged("write-back-annotation").events) > 50
    assert disagreements("write-back-annotation", LISTED, (True,)) == []


def test_the_stories_of_the_write_back_hold_every_class():
    wanted = {"scaling", "stop-and-resume", "never-ready-then-fixed", "modelmesh", "llm-inference-service"}
    assert set(STORIES) == wanted | {path.stem for path in CAPTURES.glob("write-back-*.jsonl")}
    classes = Counter(judged(name).reasons[line.why].cost for name in STORIES for line in judged(name).events)
    assert classes.total() == 420
    assert min(classes[cost] for cost in WriteCost) > 50
