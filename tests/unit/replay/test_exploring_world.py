"""The world of an exploration keeps the promises on which the consumer relies, and breaks no others."""

import pytest

from replay.exploring.loop import VirtualLoop
from replay.exploring.scheduler import Scheduler
from replay.exploring.story import plan_of
from replay.exploring.stream import Durable
from replay.exploring.world import World
from shared.errors import ConflictError
from shared.events import EventType
from tests.unit.replay.explored import busy, story_of
from tests.unit.replay.replayed import KEY, captured, isvc

STORY = story_of(captured(1, isvc(KEY, "u-1", 50, registered_model_id="1"), EventType.CREATED))


@pytest.fixture
def world():
    made = World(STORY, plan_of(STORY), Scheduler(0), workers=1)
    made.scheduler.calm = True
    yield made
    made.close()


def creating(world):
    """Let the worker send the request that creates the record; return the worker, and the request."""
    (message,) = STORY.told(1)
    with world.loop.running():
        world._publish(message)
    owner = world.owners[0]
    for _ in range(10_000):
        world.loop.run_for(0.0005)
        for asked in owner.under_way.values():
            if _creates(asked):
                return owner, asked
    raise AssertionError("no record is ever created")


def _creates(asked):
    cells = (cell.cell_contents for cell in asked.serve.__closure__)
    return any("create_record" in getattr(each, "__qualname__", "") for each in cells)


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("end", ["die", "lose"])
def test_what_is_on_the_wire_when_its_sender_ends_lands_by_then_or_never(world, lands, end):
    owner, asked = creating(world)
    asked.lands = lands
    getattr(owner, end)()
    assert len(world.registry("registry").records()) == int(lands)
    world.owners[0] = None  # nobody tries again
    world.durables[0].leave()
    world.loop.run_for(60.0)
    assert len(world.registry("registry").records()) == int(lands)


def test_the_next_owner_is_given_everything_above_the_ack_floor(world):
    owner, _ = creating(world)
    world.died(owner)
    world.loop.run_for(30.0)
    assert world.owners[0] not in {None, owner}
    assert len(world.registry("registry").records()) == 1
    assert world.durables[0].idle


def test_a_patch_of_another_uid_and_one_of_what_is_gone_are_refused(world):
    (message,) = STORY.told(1)
    world.cluster.show(message)
    with pytest.raises(ConflictError, match="uid"):
        world.cluster.patch(KEY, [{"op": "test", "path": "/metadata/uid", "value": "another"}])
    gone = story_of(captured(2, isvc(KEY, "u-1", 51, registered_model_id="1"), EventType.DELETED)).told(1)[0]
    world.cluster.show(gone)
    with pytest.raises(ConflictError, match="gone"):
        world.cluster.patch(KEY, [])


def test_messages_of_one_object_stay_in_order_whatever_overtakes():
    story = story_of(*busy(3, 20))
    given = []

    class Fate:
        def latency_s(self, _):
            return 0.001

        def strikes(self, fault, _):
            return fault == "overtakes another object's"

    loop = VirtualLoop()
    durable = Durable(loop, Fate())
    durable.reset(lambda message, _: given.append(message))
    for message in story.told(1):
        durable.add(message)
    loop.run_for(5.0)
    assert [each.sequence for each in given] != sorted(each.sequence for each in given)
    for key in {each.key for each in given}:
        mine = [each.sequence for each in given if each.key == key]
        assert mine == sorted(mine)
