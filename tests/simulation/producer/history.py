"""A history as data: generated from a seed, lived through, and shortened when it fails."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.simulation.producer.chance import ANSWER_FAULTS, some_of
from tests.simulation.producer.claims import check
from tests.simulation.producer.world import NOTHING, World

# What happens in every history, and how often.
DAILY: Mapping[Callable[[World], object], int] = {World.turn: 30, World.write: 8, World.fill: 1}
# What happens where a history has it.
MISFORTUNES: Mapping[str, tuple[Callable[[World], object], int]] = {
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
STEPS_MIN, STEPS_MAX = 20, 70


@dataclass(frozen=True)
class Step:
    """One thing that happens; `seed` decides its details."""

    name: str
    seed: int


@dataclass(frozen=True)
class History:
    """`faults` are those that the answers of servers may have."""

    faults: frozenset[str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"    Step({step.name!r}, {step.seed})," for step in self.steps)
        return f"faults: {', '.join(sorted(self.faults)) or 'none'}\n{steps}"


_DEEDS: Mapping[str, Callable[[World], object]] = {
    **{deed.__name__: deed for deed in DAILY},
    **{name: deed for name, (deed, _) in MISFORTUNES.items()},
}


def of(seed: int) -> History:
    """Return the history of a seed; the same for ever, as long as the code is."""
    generator = random.Random(seed)
    faults = some_of(generator, tuple(ANSWER_FAULTS))
    present = sorted(some_of(generator, tuple(MISFORTUNES)))
    weights = {deed.__name__: weight for deed, weight in DAILY.items()}
    weights |= {name: MISFORTUNES[name][1] for name in present}
    count = generator.randint(STEPS_MIN, STEPS_MAX)
    names = generator.choices(tuple(weights), tuple(weights.values()), k=count)
    return History(faults, tuple(Step(name, generator.getrandbits(32)) for name in names))


def live(history: History) -> Counter[str]:
    """Live through a history, and check its end. Returns the faults that happened; raises AssertionError."""
    world = World(history.faults)
    try:
        for step in history.steps:
            world.chance.begin(step.seed)
            if _DEEDS[step.name](world) is not NOTHING and step.name in MISFORTUNES:
                world.chance.met(step.name)
        world.chance.begin(0)
        world.come_to_rest()
        check(world)
    finally:
        world.close()
    return world.chance.faults


def failure(history: History) -> str:
    """Return what fails in a history; empty when nothing does."""
    try:
        live(history)
    except AssertionError as error:
        return str(error) or "an assertion of the product"
    return ""


def _way(history: History) -> str:
    """Return which claim fails, without the object."""
    return failure(history).rpartition(": ")[2]


def shortened(history: History) -> History:
    """Return a history that still fails in the same way, without steps and faults that it does not need."""
    way = _way(history)
    size = max(1, len(history.steps) // 2)
    while True:
        at = 0
        while at < len(history.steps):
            shorter = replace(history, steps=history.steps[:at] + history.steps[at + size :])
            if _way(shorter) == way:
                history = shorter
            else:
                at += size
        if size == 1:
            break
        size //= 2
    for fault in sorted(history.faults):
        without = replace(history, faults=history.faults - {fault})
        if _way(without) == way:
            history = without
    return history


def report(seed: int) -> str:
    """Return what fails in the history of a seed, shortened, for a person."""
    history = of(seed)
    short = shortened(history)
    return (
        f"seed {seed} fails: {failure(history)}\n"
        f"shortened from {len(history.steps)} to {len(short.steps)} steps: {failure(short)}\n{short}"
    )
