"""An object that comes to ask for another registry leaves a closed record behind, whatever fails on the way."""

import pytest
from msgspec.structs import replace

from consumer.environments import Environments, Place
from consumer.lookup import Lookup
from consumer.notices import Topic
from consumer.plan import leave
from consumer.reconcile import How
from shared.errors import NotSentError, TransientError, UnreachableError, UnsettledError
from tests.unit.consumer.moving import asking, known, recorded_in_the_first, states
from tests.unit.consumer.reconciling import CREATED, EVENT, LOOK, World
from tests.unit.consumer.worlds import ID, KEY, MODEL, READY, SETTINGS, VERSION, carrying, record_of, seen


@pytest.fixture
async def world():
    return await recorded_in_the_first()


async def test_the_old_record_is_closed_and_the_new_registry_gets_one(world):
    assert (await world.see(seen(asking("second", "20")))).word == "applied"
    assert states(world) == ([False], [True])
    assert (known(world).registry, known(world).left) == ("second", frozenset())


async def test_the_same_id_in_two_registries_is_two_records(world):
    await world.see(seen(carrying(asking("second", "20"), "100")))
    assert (world.registry.only.id, world.other.only.id) == ("100", "100")
    await world.see(seen(carrying(asking("second", "30", labels={MODEL: "1", VERSION: "12"}), "100")))
    assert (world.registry.only.version_id, world.other.only.version_id) == ("11", "12")
    assert states(world) == ([False], [True])


async def test_a_move_costs_a_read_and_a_write_in_each_registry_and_the_checks_of_ids(world):
    before = (world.registry.reads, world.registry.writes)
    await world.see(seen(asking("second", "20")))
    assert (world.registry.reads - before[0], world.registry.writes - before[1]) == (1, 1)
    asked = {name: count for name, count in world.other.calls.items() if count}
    # nothing there yet: by key, by name in the environment, then the checks of model and version
    assert asked == dict.fromkeys(
        ("find_record", "find_environment", "find_record_by_name", "model_exists", "model_of_version", "create_record"),
        1,
    )


async def test_an_object_that_moves_back_opens_its_old_record_again(world):
    await world.see(seen(asking("second", "20")))
    await world.see(seen(asking("first", "30")))
    assert states(world) == ([True], [False])
    assert len(world.registry.records) == 1


async def test_every_former_models_record_is_closed_too(world):
    await world.see(seen(asking("first", "20", labels={MODEL: "2"}), models=("1", "2")))
    await world.see(seen(asking("second", "30", labels={MODEL: "2"}), models=("1", "2")))
    assert states(world) == ([False, False], [True])


async def test_what_is_known_to_be_closed_in_one_registry_is_read_in_the_next(world):
    await world.see(seen(asking("first", "20", labels={MODEL: "2"}), models=("1", "2")))
    assert known(world).closed == {"1"}
    world.other.put(record_of(seen(asking("second", "5"))))
    await world.see(seen(asking("second", "30", labels={MODEL: "2"}), models=("1", "2")))
    assert {each.model_id: each.deployed for each in world.other.records.values()} == {"1": False, "2": True}


async def test_an_old_registry_that_is_away_does_not_hold_up_the_new_one_and_is_tried_again(world):
    world.registry.fail("find_record", UnreachableError("away"), NotSentError("held", retry_after_s=1.0))
    moved = seen(asking("second", "20"))
    for failure in (UnreachableError, NotSentError):
        assert type((await world.see(moved)).failure) is failure
        assert states(world) == ([True], [True])
    assert known(world).left == {"first"}
    await world.see(moved)
    assert states(world) == ([False], [True])
    assert known(world).left == frozenset()
    assert world.registry.pending == 0


async def test_what_could_not_be_closed_is_remembered_over_later_events(world):
    world.registry.fail("update_record", TransientError("away"), TransientError("away"))
    for version in ("20", "30"):
        assert (await world.see(seen(asking("second", version)))).failure is not None
    await world.see(seen(asking("second", "30"), gone=True))
    assert states(world) == ([False], [False])


@pytest.mark.parametrize("way", [(), ("secret",)], ids=["at once", "by way of one that is not allowed"])
async def test_the_id_of_its_record_in_the_old_registry_is_no_strangers(world, way):
    for number in ("100", "101"):
        stranger = record_of(seen(asking("second", "5")), number=number)
        world.other.put(replace(stranger, external_id=f"kserve:{number}/1", name=number))
    world.registries.refused.add("secret")
    for name in way:
        await world.see(seen(carrying(asking(name, "15"), "100")))
    await world.see(seen(carrying(asking("second", "20"), "100")))
    assert world.kubernetes.labels(KEY)[ID] == "102"
    assert [notice.topic for notice in world.told] == [Topic.REGISTERED, Topic.REGISTERED]


async def test_a_new_registry_that_is_away_leaves_the_old_record_closed_and_is_tried_again(world):
    world.other.fail("find_record", TransientError("away"))
    with pytest.raises(TransientError):
        await world.see(seen(asking("second", "20")))
    assert states(world) == ([False], [])
    await world.see(seen(asking("second", "20")))
    assert states(world) == ([False], [True])


async def test_two_names_of_one_registry_end_deployed(world):
    """The last word is the new one's, in each try."""
    same = Place("second", world.registry, Environments(world.registry))
    world.registries.lookups["second"] = Lookup(same, SETTINGS, lambda: 0.0)
    world.registry.fail("update_record", TransientError("away"))
    assert (await world.see(seen(asking("second", "20")))).failure is not None
    await world.see(seen(asking("second", "20")))
    assert [each.deployed for each in world.registry.records.values()] == [True]


async def test_a_registry_that_is_not_allowed_closes_the_old_record_and_is_for_a_person(world):
    world.registries.refused.add("secret")
    result = await world.see(seen(asking("secret", "20")))
    assert result.rejections == ("registry secret is not allowed",)
    assert states(world) == ([False], [])
    assert known(world).registry == ""
    await world.see(seen(asking("first", "30")))
    assert states(world) == ([True], [])


async def test_a_registry_that_is_not_allowed_is_refused_from_the_first_event_on(world):
    world = World()
    world.registries.refused.add("secret")
    assert (await world.see(seen(asking("secret", "10")), CREATED)).rejections
    assert states(world) == ([], [])


async def test_a_registry_that_is_not_there_yet_changes_nothing_and_is_waited_for(world):
    with pytest.raises(UnsettledError, match="there is no registry third"):
        await world.see(seen(asking("third", "20")))
    assert states(world) == ([True], [])


async def test_without_labels_the_record_is_closed_where_it_is(world):
    await world.see(seen(asking(None, "20", labels={})))
    world.registries.lookups.pop("second")
    assert states(world) == ([False], [])
    await world.see(seen(asking(None, "20", labels={}), gone=True))
    assert world.registry.only.stamp.deleted


async def test_without_a_model_label_it_does_not_matter_which_registry_is_asked_for(world):
    await world.see(seen(asking("there is none", "20", labels={})))
    assert (states(world), known(world).registry) == (([False], []), "first")


async def test_labels_that_go_one_by_one_lose_no_record(world):
    await world.see(seen(asking("second", "20")))
    await world.see(seen(asking("second", "30", labels={})))
    await world.see(seen(asking(None, "40", labels={})))
    assert states(world) == ([False], [False])


async def test_an_unindexed_object_asks_for_no_registry():
    world = World()
    world.registries.refused.add("secret")
    result = await world.see(seen(asking("secret", "10", labels={}), models=()), EVENT)
    assert (result.word, result.rejections) == ("noop", ())


async def test_a_due_id_is_not_written_to_an_object_that_asks_for_another_registry_by_now():
    world = World()
    await world.see(seen(asking("first", "10", status=READY)))
    assert world.reconciler.memory.deferred() == 1
    moved = replace(asking("second", "20"), kind="LLMInferenceService")  # free to write
    assert (await world.see(seen(moved), LOOK)).word == "noop"
    assert ID not in world.kubernetes.labels(KEY)


async def test_a_repeated_event_of_a_moved_object_costs_nothing(world):
    moved = carrying(asking("second", "20"), "100")
    await world.see(seen(moved))
    counts = (world.registry.calls.total(), world.other.calls.total())
    assert (await world.see(seen(moved))).word == "duplicate"
    assert (world.registry.calls.total(), world.other.calls.total()) == counts


async def test_a_forced_look_reads_the_present_registry_only(world):
    moved = carrying(asking("second", "20"), "100")
    await world.see(seen(moved))
    before = world.registry.calls.total()
    await world.see(seen(moved), How(forced=True, is_look=True))
    assert world.registry.calls.total() == before


# --- the pure part ---


def test_leaving_closes_what_is_open_and_touches_nothing_newer():
    old = record_of(seen(asking("first", "10")))
    (closing,) = leave(seen(asking("second", "20")), {"1": old}, SETTINGS)
    assert (closing.id, closing.deployed, closing.reason) == ("7", False, "the object belongs to another registry now")
    newer = record_of(seen(asking("first", "99")))
    assert leave(seen(asking("second", "20")), {"1": newer}, SETTINGS) == ()
    closed = record_of(seen(asking("first", "10")), deployed=False)
    assert leave(seen(asking("second", "20")), {"1": closed}, SETTINGS) == ()
