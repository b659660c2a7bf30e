"""A look that names an object's own record: it lifts one that is stamped newer than any event can be."""

import pytest
from msgspec.structs import replace

from consumer.delivery.work import receive
from consumer.looks import RecordRef
from consumer.records import PROPERTY, encode_stamp
from consumer.verdict import Ack
from tests.unit.consumer.deliveries import CLUSTER_ID, delivered
from tests.unit.consumer.deliveries import an_event as event_of
from tests.unit.consumer.straying import IN_SYNC, OTHER_CLUSTER, RECORD, World
from tests.unit.consumer.worlds import KEY, MODEL, UID, VERSION, an_object, carrying, record_of, seen

REF = RecordRef("a", UID, "1")
GONE = seen(IN_SYNC.obj, gone=True)
NEXT = carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7")


@pytest.fixture
def world():
    return World()


def stamped(record=RECORD, **changes):
    return replace(record, properties=record.properties | {PROPERTY: encode_stamp(replace(record.stamp, **changes))})


def freshness(world):
    return world.a.only.stamp.freshness


@pytest.mark.parametrize("ahead", [{"epoch": 9}, {"deleted": True}, {"epoch": 9, "deleted": True}], ids=repr)
@pytest.mark.parametrize("deployed", [True, False], ids=["DEPLOYED", "UNDEPLOYED"])
async def test_a_record_that_is_ahead_becomes_true_and_the_next_event_reaches_it(world, ahead, deployed):
    world.events.by_key[KEY] = IN_SYNC
    world.lives()
    world.a.put(replace(stamped(**ahead), deployed=deployed, runtime="wrong"))
    assert await world.look(REF) == Ack()
    assert (world.a.only.deployed, world.a.only.runtime, freshness(world)) == (True, "sk", IN_SYNC.freshness)
    assert await world.handler.handle(receive(delivered(event_of(NEXT), NEXT, 2), CLUSTER_ID)) == Ack()
    assert world.a.only.version_id == "12"
    assert [each.version for each in world.a.only.stamp.history] == ["11", "12"]


async def test_an_owner_that_has_handled_events_of_the_higher_epoch_forgets_them(world):
    """Only the events were lost: the leases, and so the term of its shard, go on."""
    world.lives()
    world.a.put(RECORD)
    ahead = replace(event_of(IN_SYNC.obj), epoch=9)
    assert await world.handler.handle(receive(delivered(ahead, IN_SYNC.obj, 5), CLUSTER_ID)) == Ack()
    world.a.put(stamped(epoch=9))
    world.events.by_key[KEY] = IN_SYNC
    assert await world.look(REF) == Ack()
    assert await world.handler.handle(receive(delivered(event_of(NEXT), NEXT, 2), CLUSTER_ID)) == Ack()
    assert world.a.only.version_id == "12"


async def test_the_end_that_the_stream_tells_reaches_a_record_that_is_ahead(world):
    world.events.by_key[KEY] = GONE
    world.a.put(stamped(epoch=9))
    assert await world.look(REF) == Ack()
    assert (world.a.only.deployed, freshness(world)) == (False, GONE.freshness)


async def test_a_record_of_a_lower_epoch_costs_no_lift(world):
    world.events.by_key[KEY] = IN_SYNC
    world.lives()
    world.a.put(stamped(epoch=0))
    assert await world.look(REF) == Ack()
    assert world.a.writes == 0


@pytest.mark.parametrize("now", [None, replace(NEXT)], ids=["it is gone", "it has moved on"])
async def test_a_record_is_not_lifted_where_the_object_contradicts_the_last_event(world, now):
    """Nobody knows from which epoch its event will be; the sweep asks again."""
    world.events.by_key[KEY] = IN_SYNC
    if now is not None:
        world.kubernetes.put(now)
    world.a.put(stamped(epoch=9))
    assert await world.look(REF) == Ack()
    assert (world.a.writes, freshness(world).epoch) == (0, 9)


async def test_a_record_of_another_cluster_is_not_lifted():
    world = World(OTHER_CLUSTER)
    world.events.by_key[KEY] = IN_SYNC
    world.lives()
    world.a.put(stamped(epoch=9))
    await world.look(REF)
    assert world.a.writes == 0


async def test_a_look_that_does_not_name_the_record_lifts_nothing(world):
    world.events.by_key[KEY] = IN_SYNC
    world.lives()
    world.a.put(stamped(epoch=9))
    await world.look()
    assert world.a.writes == 0


async def test_a_lift_whose_rest_was_lost_is_finished_by_the_repetition(world):
    world.events.by_key[KEY] = IN_SYNC
    world.lives()
    world.a.put(replace(record_of(IN_SYNC), deployed=False))
    assert await world.look(REF) == Ack()
    assert world.a.only.deployed is True
