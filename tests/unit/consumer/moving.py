"""An object that asks for one registry or another, and what became of its records."""

from consumer.memory import Known
from shared.objects import ReducedObject
from tests.unit.consumer.reconciling import CREATED, World
from tests.unit.consumer.worlds import MODEL, PREFIX, UID, VERSION, an_object, seen

NAME = PREFIX + "name"


def asking(name: str | None, version: str, labels: dict[str, str] | None = None, **changes) -> ReducedObject:
    chosen = {} if name is None else {NAME: name}
    return an_object(
        {MODEL: "1", VERSION: "11"} | chosen if labels is None else labels | chosen, version=version, **changes
    )


def states(world: World) -> tuple[list[bool | None], list[bool | None]]:
    return tuple([each.deployed for each in registry.records.values()] for registry in (world.registry, world.other))


def known(world: World) -> Known:
    found = world.reconciler.memory.get(UID)
    assert found is not None
    return found


async def recorded_in_the_first() -> World:
    """Return a world in which the object is recorded in the first registry."""
    world = World()
    await world.see(seen(asking("first", "10")), CREATED)
    return world
