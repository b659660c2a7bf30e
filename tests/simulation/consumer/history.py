"""A history as data: generated from a seed, lived through, and shortened when it fails."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.simulation.consumer.chance import FAULTS, OPTIONS, some_of
from tests.simulation.consumer.claims import Judge
from tests.simulation.consumer.world import NOTHING, World, listening

# What happens in every history, and how often.
DAILY: Mapping[Callable[[World], object], int] = {World.turn: 22, World.write: 16}
# What happens where a history has it.
MISFORTUNES: Mapping[str, tuple[Callable[[World], object], int]] = {
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
    "poison": (World.poison, 1),
    "another cluster's record": (World.foreign_record, 1),
}
STEPS_MIN, STEPS_MAX = 12, 36


@dataclass(frozen=True)
class Step:
    """One thing that happens; `seed` decides its details."""

    name: str
    seed: int


@dataclass(frozen=True)
class History:
    """`options` are the faults that requests and messages may have, and settings of the consumer."""

    options: frozenset[str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"    Step({step.name!r}, {step.seed})," for step in self.steps)
        return f"options: {', '.join(sorted(self.options)) or 'none'}\n{steps}"


_DEEDS: Mapping[str, Callable[[World], object]] = {
    **{deed.__name__: deed for deed in DAILY},
    **{name: deed for name, (deed, _) in MISFORTUNES.items()},
}


def of(seed: int) -> History:
    """Return the history of a seed; the same for ever, as long as the code is."""
    generator = random.Random(seed)
    options = some_of(generator, (*FAULTS, *OPTIONS))
    present = sorted(some_of(generator, tuple(MISFORTUNES)))
    weights = {deed.__name__: weight for deed, weight in DAILY.items()}
    weights |= {name: MISFORTUNES[name][1] for name in present}
    count = generator.randint(STEPS_MIN, STEPS_MAX)
    names = generator.choices(tuple(weights), tuple(weights.values()), k=count)
    return History(options, tuple(Step(name, generator.getrandbits(32)) for name in names))


def live(history: History) -> Counter[str]:
    """Live through a history, and check its end. Returns the faults that happened; raises AssertionError."""
    world = World(history.options)
    with listening() as ear:
        try:
            for step in history.steps:
                world.chance.begin(step.seed)
                if _DEEDS[step.name](world) is not NOTHING and step.name in MISFORTUNES:
                    world.chance.met(step.name)
            world.chance.begin(0)
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
    """Return a history that still fails in the same way, without steps and options that it does not need."""
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
    for option in sorted(history.options):
        without = replace(history, options=history.options - {option})
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
