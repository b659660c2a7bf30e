"""Ids that cannot be written yet: when somebody looks again, and what that costs."""

from msgspec.structs import replace

from consumer.memory import Memory
from consumer.reconcile import DUE_LOOKS_S
from consumer.writeback import WriteBack
from shared.objects import ModelCopies, ModelStatus
from tests.unit.consumer.reconciling import FORCED_LOOK, LOOK, WHEN_READY, World
from tests.unit.consumer.worlds import ID, KEY, MODEL, READY, SETTINGS, VERSION, an_object, carrying, seen


async def test_a_costly_write_is_deferred_and_looked_at_after_one_and_five_seconds(world):
    await world.see(seen(WHEN_READY))
    assert DUE_LOOKS_S == (1.0, 5.0)
    assert world.looks == [(KEY, 1.0), (KEY, 5.0)]
    assert world.reconciler.memory.deferred() == 1
    assert world.registry.only.deployed


async def test_each_later_event_of_it_is_followed_by_looks(world):
    await world.see(seen(WHEN_READY))
    world.looks.clear()
    await world.see(seen(replace(WHEN_READY, metadata=replace(WHEN_READY.metadata, resource_version="21"))))
    assert world.looks == [(KEY, 1.0), (KEY, 5.0)]


async def test_looks_cause_no_further_looks_and_no_call_while_it_is_costly(world):
    await world.see(seen(WHEN_READY))
    world.looks.clear()
    assert await world.cost_of(seen(WHEN_READY), LOOK) == ("noop", 0, 0, 0)
    assert world.looks == []
    assert world.reconciler.memory.deferred() == 1


def rolling(version):
    conditions = (READY.conditions[0], replace(READY.conditions[1], reason="MinimumReplicasAvailable"))
    obj = an_object(status=replace(READY, conditions=conditions), version=version)
    return replace(obj, status=replace(obj.status, model_status=ModelStatus(copies=ModelCopies(1))))


async def test_a_look_that_defers_causes_no_further_looks(world):
    await world.see(seen(WHEN_READY), FORCED_LOOK)
    assert (world.looks, world.reconciler.memory.deferred()) == ([], 1)


async def test_a_look_that_finds_it_cheap_patches_without_asking_the_registry(world):
    await world.see(seen(WHEN_READY))
    assert await world.cost_of(seen(rolling("25")), LOOK) == ("applied", 0, 0, 1)
    assert world.kubernetes.labels(KEY)[ID] == world.registry.only.id
    assert world.reconciler.memory.deferred() == 0


async def test_a_look_of_our_own_overtakes_no_event(world):
    """Its event, and those before it, are still to come: with versions that belong into the history."""
    await world.see(seen(WHEN_READY))
    newest = an_object({MODEL: "1", VERSION: "11"}, status=READY, version="40")
    assert await world.cost_of(seen(newest), LOOK) == ("noop", 0, 0, 0)
    await world.see(seen(an_object({MODEL: "1", VERSION: "12"}, status=READY, version="30")))
    await world.see(seen(newest))
    assert [change.version for change in world.registry.only.stamp.history] == ["11", "12", "11"]


async def test_a_look_at_an_object_that_moved_to_another_model_writes_no_id(world):
    await world.see(seen(WHEN_READY))
    moved = replace(rolling("40"), metadata=an_object({MODEL: "2"}, version="40").metadata)
    assert await world.cost_of(seen(moved), LOOK) == ("noop", 0, 0, 0)


async def test_the_echo_of_a_late_patch_costs_nothing(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(rolling("25")), LOOK)
    echo = seen(carrying(rolling("26"), world.registry.only.id))
    assert await world.cost_of(echo) == ("noop", 0, 0, 0)


async def test_a_deferred_id_that_somebody_else_wrote_is_no_longer_due(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(carrying(an_object(status=READY, version="30"), world.registry.only.id)))
    assert world.reconciler.memory.deferred() == 0


async def test_a_deleted_object_waits_for_no_id(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(an_object(status=READY, version="30", going=True)))
    assert world.reconciler.memory.deferred() == 0


async def test_without_write_back_nothing_is_due():
    world = World(replace(SETTINGS, write_back=WriteBack.OFF))
    await world.see(seen(WHEN_READY))
    assert (world.looks, world.kubernetes.calls["patch"]) == ([], 0)


async def test_what_is_forgotten_costs_one_read(linked):
    linked.reconciler.memory = Memory()
    assert await linked.cost_of(linked.echo("12")) == ("noop", 1, 0, 0)
