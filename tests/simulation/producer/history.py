"""What happens to the producer in a history, and how one is lived."""

from collections import Counter
from collections.abc import Mapping

from tests.simulation.histories import Deed, History, Recipe, Simulation
from tests.simulation.producer.chance import ANSWER_FAULTS
from tests.simulation.producer.claims import check
from tests.simulation.producer.world import World

# What happens in every history, and how often.
DAILY: Mapping[Deed, int] = {World.turn: 30, World.write: 8, World.fill: 1}
# What happens where a history has it.
MISFORTUNES: Mapping[str, tuple[Deed, int]] = {
    "many deleted": (World.delete_many, 1),
    "API server restarted": (World.restart_api, 1),
    "backup": (World.back_up, 2),
    "etcd restored": (World.restore, 2),
    "broker restarted": (World.restart_broker, 1),
    "broker away": (World.turn_broker_off_or_on, 1),
    "storage of the broker lost": (World.lose_storage, 1),
    "old tombstones forgotten": (World.forget, 1),
    "clock stopped": (World.stop_clock_or_start_it, 1),
    "crash": (World.crash, 3),
    "leader changed": (World.change_leader, 2),
    "old leader woken": (World.wake, 2),
    "duplicate producer": (World.duplicate, 1),
    "duplicate ended": (World.end_duplicate, 1),
    "scope changed": (World.change_scope, 1),
    "selection changed": (World.change_selection, 1),
    "namespace deleted": (World.delete_namespace, 1),
    "held deletes approved": (World.approve, 2),
    "audit": (World.audit, 2),
    "periodic list": (World.relist, 1),
}
RECIPE = Recipe(DAILY, MISFORTUNES, tuple(ANSWER_FAULTS), (0.15, 0.4, 0.8), steps=(20, 70))


def live(history: History) -> Counter[str]:
    """Live through a history, and check its end. Returns the faults that happened; raises AssertionError."""
    world = World(history.options)
    try:
        RECIPE.happen(history, world, world.chance)
        world.come_to_rest()
        check(world)
    finally:
        world.close()
    return world.chance.faults


SIMULATION = Simulation(RECIPE, live)
