"""Of what the registries held, a small story keeps what its events can ask for."""

import pytest

from replay.capture import Facts, RecordFact
from replay.exploring.needing import Needs
from tests.unit.replay.explored import busy, story_of
from tests.unit.replay.replayed import KEY, captured, isvc

EVENT = captured(1, isvc(KEY, "u-1", 50, registered_model_id="1", model_version_id="11"))
OWN = RecordFact(id="7", name="iris/u-1", external_id="kserve:u-1/5", environment="then", model_id="5", version_id="51")
OTHER = RecordFact(id="8", name="rose/u-2", external_id="kserve:u-2/6", environment="team-b", model_id="6")


def of(*facts: Facts) -> tuple[Facts | None, ...]:
    return Needs(story_of(EVENT)).of(facts)


ASKED = {
    "its model": Facts(models=("1",)),
    "its version": Facts(versions={"11": "1"}),
    "its model, absent": Facts(absent_models=("1",)),
    "its version, absent": Facts(absent_versions=("11",)),
    "its environment": Facts(environments={"team-a": "3"}),
    "its record": Facts(records=(OWN,)),
    "one of its name, of another controller": Facts(
        records=(RecordFact(id="9", name="iris", environment="team-a", model_id="1"),)
    ),
}
TOLD = Facts(models=("1",))


@pytest.mark.parametrize("facts", ASKED.values(), ids=ASKED)
def test_what_an_event_can_ask_for_stays(facts):
    assert of(TOLD, facts) == (TOLD, facts)


OTHERS = {
    "another model": Facts(models=("2",)),
    "another version": Facts(versions={"12": "1"}),
    "another model, absent": Facts(absent_models=("2",)),
    "another version, absent": Facts(absent_versions=("12",)),
    "another environment": Facts(environments={"team-b": "3"}),
    "another record": Facts(records=(OTHER,)),
}


@pytest.mark.parametrize("facts", OTHERS.values(), ids=OTHERS)
def test_what_no_event_can_ask_for_goes(facts):
    assert of(TOLD, facts) == (TOLD, None)


def test_of_a_line_the_part_stays_that_is_asked_for():
    many = Facts(models=("1", "2"), versions={"11": "1", "12": "1"}, records=(OWN, OTHER))
    assert of(many) == (Facts(models=("1",), versions={"11": "1"}, records=(OWN,)),)


def test_what_a_record_names_stays_with_it():
    line = Facts(models=("5", "6"), versions={"51": "5"}, environments={"then": "2", "team-b": "3"}, records=(OWN,))
    kept = Facts(models=("5",), versions={"51": "5"}, environments={"then": "2"}, records=(OWN,))
    assert of(TOLD, line) == (TOLD, kept)


def test_a_registry_that_tells_of_other_models_only_goes_on_to_tell_of_models():
    """Without any, the model that is named would be taken to exist."""
    others = Facts(models=("2",)), Facts(models=("3",))
    assert of(*others) == (others[0], None)


def test_what_all_ask_for_is_left_as_it_is():
    story = story_of(*busy(3, 3))
    [facts] = Needs(story).of(story.facts)
    assert facts is not None
    assert set(facts.versions) == {"10", "11", "12"}
