"""A look that says that a person has chosen a predecessor's record: when it is undeployed, and when it is not."""

import pytest
from msgspec.structs import replace

from consumer.looks import RecordRef, decode, encode
from consumer.verdict import Ack
from tests.unit.consumer.straying import IN_SYNC, OTHER_CLUSTER, RECORD, World
from tests.unit.consumer.worlds import KEY, SETTINGS, UID

THEIRS = replace(RECORD, external_id="", properties={"url": {"metadataType": "MetadataStringValue"}})
CHOSEN = RecordRef("a", UID, "1", unclaimed=True)


@pytest.fixture
def world():
    return World()


def test_a_look_says_of_each_record_whether_it_was_chosen():
    named = (RecordRef("http://a/b c", UID, "1"), RecordRef("ns/mr", UID, "2", unclaimed=True))
    assert decode(encode(named)) == named


async def test_a_chosen_record_whose_object_is_gone_is_undeployed_and_says_so_from_then_on(world):
    world.a.put(THEIRS)
    assert await world.look(CHOSEN) == Ack()
    closed = world.a.only
    assert (closed.deployed, closed.external_id, closed.stamp.cluster_id) == (False, f"kserve:{UID}/1", "c-1")
    assert (closed.stamp.deleted, closed.properties["url"]) == (True, THEIRS.properties["url"])


async def test_one_that_was_not_chosen_is_left_alone(world):
    world.a.put(THEIRS)
    await world.look(replace(CHOSEN, unclaimed=False))
    assert (world.a.only, world.a.writes) == (THEIRS, 0)


async def test_a_chosen_record_of_an_object_that_lives_is_left_alone(world):
    world.a.put(THEIRS)
    world.lives()
    await world.look(CHOSEN)
    assert (world.a.only, world.a.writes) == (THEIRS, 0)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(THEIRS, deployed=False), id="undeployed already"),
        pytest.param(replace(THEIRS, deployed=None), id="without a state"),
        pytest.param(replace(THEIRS, external_id="somebody's"), id="claimed by somebody else"),
        pytest.param(replace(RECORD, properties={"isvc-sync": {"string_value": "edited"}}), id="ours, edited by hand"),
    ],
)
async def test_a_chosen_record_that_is_no_orphan_is_left_alone(world, record):
    world.a.put(record)
    await world.look(CHOSEN)
    assert (world.a.only, world.a.writes) == (record, 0)


async def test_the_word_of_a_person_does_not_reach_another_clusters_record():
    world = World(OTHER_CLUSTER)
    world.a.put(RECORD)
    await world.look(CHOSEN)
    assert (world.a.only, world.a.writes) == (RECORD, 0)


async def test_a_record_in_another_environment_is_not_found(world):
    world.a.put(THEIRS, environment="team-b")
    await world.look(CHOSEN)
    assert world.a.writes == 0
    assert SETTINGS.environment == "{namespace}"


async def test_nor_is_one_in_another_registry_while_events_tell_of_the_object(world):
    world.lives()
    world.events.by_key[KEY] = IN_SYNC
    world.a.put(RECORD)
    world.b.put(THEIRS)
    await world.look(replace(CHOSEN, registry="b"))
    assert (world.b.only, world.b.writes) == (THEIRS, 0)
