"""What is asked of the registry before a decision, and what is not asked twice."""

import asyncio

import pytest
from msgspec.structs import replace

from consumer.environments import Environments, Place
from consumer.lookup import CHECKED_FOR_S, Lookup
from consumer.plan import Facts, Questions, questions
from consumer.records import PROPERTY, Record, encode_stamp, external_id
from shared.errors import ConflictError, PermanentError, TransientError
from tests.unit.consumer.fakes import FakeRegistry
from tests.unit.consumer.worlds import SETTINGS, UID, an_object, record_of, seen

RECORD = record_of(seen(an_object()))
ADOPTABLE = replace(RECORD, external_id="")
EDITED = replace(RECORD, id="8", name=f"iris/{UID}/2", model_id="2", external_id="bar")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def registry():
    return FakeRegistry()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lookup(registry, clock):
    return Lookup(Place("first", registry, Environments(registry)), SETTINGS, clock)


async def test_a_record_is_found_by_our_key_with_one_call(lookup, registry):
    registry.put(RECORD)
    assert await lookup.records(seen(), ["1"]) == {"1": RECORD}
    assert registry.calls.total() == 1


async def test_no_models_is_no_call(lookup, registry):
    assert await lookup.records(seen(models=()), []) == {}
    assert registry.calls.total() == 0


async def test_a_predecessors_record_of_the_first_model_is_found_by_its_name(lookup, registry):
    registry.put(ADOPTABLE)
    assert await lookup.records(seen(models=("1", "2")), ["1", "2"]) == {"1": ADOPTABLE}


async def test_a_predecessors_record_is_listed_under_its_own_model(lookup, registry):
    registry.put(replace(ADOPTABLE, model_id="9"))
    assert list(await lookup.records(seen(), ["1"])) == ["9"]


async def test_a_name_is_looked_for_in_the_objects_environment_only(lookup, registry):
    registry.put(ADOPTABLE, environment="team-b")
    assert await lookup.records(seen(), ["1"]) == {}
    assert registry.calls["find_record_by_name"] == 0


async def test_later_models_are_found_by_key_only(lookup, registry):
    registry.put(ADOPTABLE)
    registry.put(EDITED)
    assert await lookup.records(seen(models=("2", "1")), ["1"]) == {}
    assert await lookup.records(seen(models=("1", "2")), ["2"]) == {}
    assert registry.calls["find_record_by_name"] == 0


async def test_a_thorough_look_up_finds_a_later_models_record_whose_external_id_was_edited(lookup, registry):
    registry.put(EDITED)
    assert await lookup.records(seen(models=("1", "2")), ["1", "2"], thorough=True) == {"2": EDITED}


async def test_a_thorough_look_up_finds_the_first_models_record_beside_a_predecessors_of_another_model(
    lookup, registry
):
    ours = replace(RECORD, id="8", name=f"iris/{UID}/1", external_id="bar")
    for record in (theirs := replace(ADOPTABLE, model_id="9"), ours):
        registry.put(record)
    assert await lookup.records(seen(), ["1"], thorough=True) == {"9": theirs, "1": ours}


async def test_a_thorough_look_up_asks_no_more_for_a_first_model_that_has_no_record(lookup, registry):
    registry.environments["team-a"] = "3"
    assert await lookup.records(seen(), ["1"], thorough=True) == {}
    assert registry.calls["find_record_by_name"] == 1


async def test_a_thorough_look_up_asks_no_more_where_the_external_id_is_ours(lookup, registry):
    for record in (RECORD, replace(EDITED, external_id=external_id(UID, "2"))):
        registry.put(record)
    assert len(await lookup.records(seen(models=("1", "2")), ["1", "2"], thorough=True)) == 2
    assert registry.calls.total() == 2


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(EDITED, model_id="9"), id="another model"),
        pytest.param(
            replace(EDITED, properties={PROPERTY: encode_stamp(replace(RECORD.stamp, uid="another"))}), id="another uid"
        ),
    ],
)
async def test_a_record_of_a_later_name_that_is_about_something_else_is_not_taken(lookup, registry, record):
    registry.put(record)
    assert await lookup.records(seen(models=("1", "2")), ["2"], thorough=True) == {}


async def test_a_record_of_a_later_name_without_our_property_is_taken_as_an_earlier_controllers_is(lookup, registry):
    registry.put(bare := replace(EDITED, properties={}))
    assert await lookup.records(seen(models=("1", "2")), ["2"], thorough=True) == {"2": bare}


async def test_the_environment_is_asked_for_once(lookup, registry):
    registry.put(ADOPTABLE)
    for _ in range(3):
        await lookup.records(seen(), ["1"])
    assert registry.calls["find_environment"] == 1


async def test_facts_answer_the_questions(lookup):
    asked = Questions(models=frozenset({"1", "404"}), versions=frozenset({"11", "21", "404"}))
    assert await lookup.facts(asked) == Facts({"1": True, "404": False}, {"11": "1", "21": "2", "404": None})


async def test_what_exists_is_asked_again_after_a_minute_only(lookup, registry, clock):
    asked = Questions(models=frozenset({"1"}), versions=frozenset({"11"}))
    await lookup.facts(asked)
    clock.now += CHECKED_FOR_S - 0.001
    await lookup.facts(asked)
    assert (registry.calls["model_exists"], registry.calls["model_of_version"]) == (1, 1)
    clock.now += 0.001
    await lookup.facts(asked)
    assert (registry.calls["model_exists"], registry.calls["model_of_version"]) == (2, 2)


async def test_what_does_not_exist_is_asked_again_each_time(lookup, registry):
    asked = Questions(models=frozenset({"404"}), versions=frozenset({"404"}))
    for _ in range(2):
        assert await lookup.facts(asked) == Facts({"404": False}, {"404": None})
    registry.models.add("404")
    registry.versions["404"] = "1"
    assert await lookup.facts(asked) == Facts({"404": True}, {"404": "1"})


async def test_a_model_and_a_version_of_one_number_are_two_things(lookup, registry):
    registry.versions["1"] = "2"
    await lookup.facts(Questions(models=frozenset({"1"})))
    assert (await lookup.facts(Questions(versions=frozenset({"1"})))).versions == {"1": "2"}


async def test_what_is_remembered_is_bounded(lookup, registry, clock):
    registry.models = {str(number) for number in range(10_050)}
    await lookup.facts(Questions(models=frozenset(registry.models)))
    clock.now += CHECKED_FOR_S
    await lookup.facts(Questions(models=frozenset({"1"})))
    assert len(lookup._checked) == 1


@pytest.mark.parametrize("method", ["find_record", "find_environment", "find_record_by_name"])
async def test_a_failing_registry_is_no_empty_registry(lookup, registry, method):
    registry.put(ADOPTABLE)
    registry.fail(method, TransientError("away"))
    with pytest.raises(TransientError, match="away"):
        await lookup.records(seen(), ["1"])
    assert registry.pending == 0


# --- environments ---------------------------------------------------------------------------------------------------


async def test_an_environment_is_made_once(registry):
    environments = Environments(registry)
    ids = [await environments.get_or_create("team-a") for _ in range(3)]
    assert len(set(ids)) == 1
    assert (registry.calls["find_environment"], registry.calls["create_environment"]) == (1, 1)


async def test_an_environment_that_somebody_else_makes_meanwhile_is_found(registry):
    registry.environments["team-a"] = "9"
    registry.fail("create_environment", ConflictError("taken"))
    environments = Environments(registry)
    finds = iter([None, "9"])

    async def find(_):
        return next(finds)

    registry.find_environment = find
    assert await environments.get_or_create("team-a") == "9"


async def test_a_name_that_is_taken_and_cannot_be_found_is_for_a_person(registry):
    registry.fail("create_environment", ConflictError("taken"))
    with pytest.raises(PermanentError, match="like 'team-a'"):
        await Environments(registry).get_or_create("team-a")


async def test_a_forgotten_environment_is_asked_for_again(registry):
    environments = Environments(registry)
    await environments.get_or_create("team-a")
    environments.forget("team-a")
    environments.forget("never known")
    await environments.find("team-a")
    assert registry.calls["find_environment"] == 2


def test_the_record_of_the_tests_has_our_key():
    assert RECORD.external_id == external_id(UID, "1")
    assert isinstance(RECORD, Record)


async def test_many_objects_that_want_to_know_the_same_ask_once(registry, lookup):
    asked = questions(seen(), {}, SETTINGS)
    await asyncio.gather(*(lookup.facts(asked) for _ in range(5)))
    assert (registry.calls["model_exists"], registry.calls["model_of_version"]) == (1, 1)


async def test_many_objects_of_a_new_environment_make_it_once(registry):
    environments = Environments(registry)
    ids = await asyncio.gather(*(environments.get_or_create("team-a") for _ in range(5)))
    assert (len(set(ids)), registry.calls["create_environment"]) == (1, 1)
