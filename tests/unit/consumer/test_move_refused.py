"""A former registry that refuses for good to close the object's record: told, and nothing else waits for it."""

import pytest

from consumer.environments import Environments, Place
from consumer.lookup import Lookup
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from tests.unit.consumer.fakes import FakeRegistry
from tests.unit.consumer.moving import asking, known, recorded_in_the_first, states
from tests.unit.consumer.worlds import MODEL, SETTINGS, VERSION, carrying, seen


@pytest.fixture
async def world():
    return await recorded_in_the_first()


REFUSALS = [PermanentError("405, no such method"), ConflictError("409, taken"), NotFoundError("404, no such thing")]


@pytest.mark.parametrize("method", ["find_record", "update_record"])
@pytest.mark.parametrize("refusal", REFUSALS, ids=repr)
async def test_an_old_registry_that_refuses_for_good_does_not_hold_up_the_new_one_and_is_for_a_person(
    world, method, refusal
):
    world.registry.fail(method, refusal)
    result = await world.see(seen(asking("second", "20")))
    assert states(world) == ([True], [True])
    (rejection,) = result.rejections
    assert "registry first" in rejection
    assert str(refusal) in rejection
    assert known(world).registry == "second"


async def test_an_old_registry_that_refused_is_not_asked_again_by_what_changes_nothing(world):
    world.registry.fail("update_record", PermanentError("405"))
    rejections = (await world.see(seen(carrying(asking("second", "20"), "100")))).rejections
    counts = (world.registry.calls.total(), world.other.calls.total())
    for version in ("20", "30"):
        assert (await world.see(seen(carrying(asking("second", version), "100")))).rejections == rejections
    assert (world.registry.calls.total(), world.other.calls.total()) == counts


async def test_an_old_registry_that_refused_is_asked_again_when_the_object_changes(world):
    world.registry.fail("update_record", PermanentError("405"), PermanentError("405"))
    for version, label in (("20", "11"), ("30", "12")):
        changed = asking("second", version, labels={MODEL: "1", VERSION: label})
        assert (await world.see(seen(changed))).rejections
        assert states(world) == ([True], [True])
    result = await world.see(seen(asking("second", "40")))
    assert (result.rejections, states(world)) == ((), ([False], [True]))
    assert known(world).refused == frozenset()


async def test_the_end_of_an_object_is_recorded_though_its_old_registry_refuses(world):
    world.registry.fail("update_record", PermanentError("405"), PermanentError("405"))
    await world.see(seen(asking("second", "20")))
    assert (await world.see(seen(asking("second", "30"), gone=True))).rejections
    assert states(world) == ([True], [False])


async def test_an_object_that_moves_back_to_a_registry_that_refused_has_nothing_to_complain_of(world):
    world.registry.fail("update_record", PermanentError("405"))
    await world.see(seen(asking("second", "20")))
    assert (await world.see(seen(asking("first", "30")))).rejections == ()
    assert states(world) == ([True], [False])


async def test_two_refusals_are_both_told(world):
    world.registries.refused.add("secret")
    world.registry.fail("update_record", PermanentError("405"))
    rejections = (await world.see(seen(asking("secret", "20")))).rejections
    assert len(rejections) == 2
    assert rejections[0] == "registry secret is not allowed"


async def test_of_two_old_registries_one_refuses_and_one_is_away_and_the_new_one_is_written(world):
    third = FakeRegistry()
    third.environments["team-a"] = "3"
    world.registries.lookups["third"] = Lookup(Place("third", third, Environments(third)), SETTINGS, lambda: 0.0)
    world.registry.fail("update_record", *[PermanentError("405")] * 3)
    world.other.fail("update_record", TransientError("away"))
    await world.see(seen(asking("second", "20")))
    assert (await world.see(seen(asking("third", "30")))).failure is not None
    assert third.only.deployed
    assert len((await world.see(seen(asking("third", "30")))).rejections) == 1
    assert states(world) == ([True], [False])


async def test_an_object_that_is_gone_complains_of_a_registry_that_is_not_allowed_no_more(world):
    world.registries.refused.add("secret")
    assert (await world.see(seen(asking("secret", "20")))).rejections
    result = await world.see(seen(asking("secret", "30"), gone=True))
    assert (result.rejections, result.settles) == ((), True)
