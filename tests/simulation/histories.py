"""Histories as data, for every simulation: made from a seed, lived through, and shortened when they fail.

A simulation gives a `Recipe` of what happens in its world, and how a history is lived (`Simulation`).
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

NOTHING: Final = object()  # answered by a misfortune that found nothing to befall

Deed = Callable[[Any], object]


@dataclass(frozen=True)
class Step:
    """One thing that happens; `seed` decides its details."""

    name: str
    seed: int


@dataclass(frozen=True)
class History:
    """`options` are the faults that answers and messages may have in it, and settings of who is tested."""

    options: frozenset[str]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"    Step({step.name!r}, {step.seed})," for step in self.steps)
        return f"options: {', '.join(sorted(self.options)) or 'none'}\n{steps}"


class Chance(Protocol):
    """Where a world takes its choices from."""

    def begin(self, seed: int) -> None:
        """Take what follows from this seed."""

    def met(self, name: str) -> None:
        """Note that something struck."""


@dataclass(frozen=True)
class Recipe:
    """What happens in every history, and what misfortunes some have, each with how often; `shares` as in `some_of`."""

    daily: Mapping[Deed, int]
    misfortunes: Mapping[str, tuple[Deed, int]]
    options: tuple[str, ...]
    shares: tuple[float, ...]
    steps: tuple[int, int]

    def of(self, seed: int) -> History:
        """Return the history of a seed; the same for ever, as long as the code is."""
        generator = random.Random(seed)
        options = some_of(generator, self.options, self.shares)
        present = sorted(some_of(generator, tuple(self.misfortunes), self.shares))
        weights = {deed.__name__: weight for deed, weight in self.daily.items()}
        weights |= {name: self.misfortunes[name][1] for name in present}
        count = generator.randint(*self.steps)
        names = generator.choices(tuple(weights), tuple(weights.values()), k=count)
        return History(options, tuple(Step(name, generator.getrandbits(32)) for name in names))

    def happen(self, history: History, world: Any, chance: Chance) -> None:
        """Let all of it happen to a world, and note the misfortunes that struck."""
        deeds = {deed.__name__: deed for deed in self.daily}
        deeds |= {name: deed for name, (deed, _) in self.misfortunes.items()}
        for step in history.steps:
            chance.begin(step.seed)
            if deeds[step.name](world) is not NOTHING and step.name in self.misfortunes:
                chance.met(step.name)
        chance.begin(0)


def some_of(generator: random.Random, names: Sequence[str], shares: tuple[float, ...]) -> frozenset[str]:
    """Which a history has: one of these shares of them, so that no fault always hides another."""
    share = generator.choice(shares)
    return frozenset(name for name in names if generator.random() < share)


class Simulation:
    """`live` lives through a history and checks its end: it returns what struck, and raises AssertionError."""

    def __init__(self, recipe: Recipe, live: Callable[[History], Counter[str]]) -> None:
        self.of = recipe.of
        self.live = live

    def failure(self, history: History) -> str:
        """Return what fails in a history; empty when nothing does."""
        try:
            self.live(history)
        except AssertionError as error:
            return str(error) or "an assertion of the product"
        return ""

    def first_failing(self, first: int, histories: int) -> int | None:
        """Return the first seed whose history fails, of so many; None when all pass."""
        return next((seed for seed in range(first, first + histories) if self.failure(self.of(seed))), None)

    def shortened(self, history: History) -> History:
        """Return a history that still fails in the same way, without steps and options that it does not need."""
        way = self._way(history)
        size = max(1, len(history.steps) // 2)
        while True:
            at = 0
            while at < len(history.steps):
                shorter = replace(history, steps=history.steps[:at] + history.steps[at + size :])
                if self._way(shorter) == way:
                    history = shorter
                else:
                    at += size
            if size == 1:
                break
            size //= 2
        for option in sorted(history.options):
            without = replace(history, options=history.options - {option})
            if self._way(without) == way:
                history = without
        return history

    def report(self, seed: int) -> str:
        """Return what fails in the history of a seed, shortened, for a person."""
        history = self.of(seed)
        short = self.shortened(history)
        return (
            f"seed {seed} fails: {self.failure(history)}\n"
            f"shortened from {len(history.steps)} to {len(short.steps)} steps: {self.failure(short)}\n{short}"
        )

    def all_of(self, first: int, histories: int) -> Counter[str]:
        """Live through so many histories; return what struck. Raises AssertionError with a report."""
        seen: Counter[str] = Counter()
        for seed in range(first, first + histories):
            try:
                seen.update(self.live(self.of(seed)))
            except AssertionError as error:
                raise AssertionError(self.report(seed)) from error
        return seen

    def main(self, first: int = 0, histories: int = 1000) -> str:
        """Do that for a person; return what to end the process with."""
        began_s = time.monotonic()
        try:
            seen = self.all_of(first, histories)
        except AssertionError as error:
            return str(error)
        took_s = time.monotonic() - began_s
        counted = "".join(f"\n{count:9} {name}" for name, count in sorted(seen.items()))
        sys.stdout.write(f"{histories} histories from seed {first} in {took_s:.1f} s{counted}\n")
        return ""

    def _way(self, history: History) -> str:
        """Return which claim fails, without the object."""
        return self.failure(history).rpartition(": ")[2]
