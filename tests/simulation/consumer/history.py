"""What happens to the consumer in a history, and how one is lived."""

from collections import Counter
from collections.abc import Mapping

from replay.exploring.listening import listening
from tests.simulation.consumer.chance import FAULTS, OPTIONS
from tests.simulation.consumer.claims import Judge
from tests.simulation.consumer.world import World
from tests.simulation.histories import Deed, History, Recipe, Simulation

# What happens in every history, and how often.
DAILY: Mapping[Deed, int] = {World.turn: 22, World.write: 16}
# What happens where a history has it.
MISFORTUNES: Mapping[str, tuple[Deed, int]] = {
    "consumer killed": (World.crash, 4),
    "shard taken over": (World.take_over, 2),
    "consumer reconnected": (World.reconnect, 2),
    "database down or up": (World.database_down_or_up, 2),
    "look asked for": (World.look, 2),
    "looked at while it goes": (World.look_at_what_goes, 2),
    "producer away or back": (World.away_or_back, 2),
    "periodic list": (World.relist, 1),
    "backup": (World.back_up, 1),
    "etcd restored": (World.restore, 1),
    "kind uninstalled": (World.uninstall_a_kind, 1),
    "poison": (World.poison, 1),
    "another cluster's record": (World.foreign_record, 1),
}
RECIPE = Recipe(DAILY, MISFORTUNES, (*FAULTS, *OPTIONS), (0.1, 0.3, 0.7), steps=(12, 36))


def live(history: History) -> Counter[str]:
    """Live through a history, and check its end. Returns the faults that happened; raises AssertionError."""
    world = World(history.options)
    with listening() as ear:
        try:
            RECIPE.happen(history, world, world.chance)
            world.come_to_rest()
            if Judge(world, swept=False).leaves_something():
                world.sweep()
                assert not Judge(world, swept=True).leaves_something()
                world.chance.met("swept")
            assert not ear.heard, f"unexpected: {ear.heard[0]}"
            assert not world.loop.broken, f"unexpected: {world.loop.broken[0]}"
        finally:
            world.close()
    return world.chance.faults


SIMULATION = Simulation(RECIPE, live)
