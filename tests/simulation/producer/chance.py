"""Fate and time of one history: every choice comes from here, every fault is counted, and here stands the clock."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

# How often each fault of an answer occurs where a history has it at all.
ANSWER_FAULTS: Mapping[str, float] = {
    "list refused": 0.15,
    "page expired": 0.2,
    "no WatchList": 0.5,
    "initial state cut": 0.15,
    "watch refused": 0.2,
    "position expired": 0.02,
    "watch cut": 0.05,
    "malformed line": 0.03,
    "sent twice": 0.1,
    "PubAck lost": 0.1,
}
CLOCK_STANDS = "clock stands still"


class Chance:
    """The present step's generator: each step brings a seed of its own, so that a step taken out leaves the others."""

    def __init__(self, enabled: frozenset[str]) -> None:
        self.enabled = enabled
        self.faults: Counter[str] = Counter()
        self.calm = False
        self.stands_still = False
        self.now_s = 1_000_000
        self._random = random.Random(0)

    def begin(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def randint(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def shuffled(self, options: Sequence[T]) -> list[T]:
        return self._random.sample(options, len(options))

    def share(self, share: float) -> bool:
        return self._random.random() < share

    def fault(self, name: str) -> bool:
        """Whether this fault strikes now; never in calm, and not in a history without it."""
        if self.calm or name not in self.enabled or not self.share(ANSWER_FAULTS[name]):
            return False
        self.met(name)
        return True

    def met(self, name: str) -> None:
        self.faults[name] += 1

    def pass_time(self, seconds: int) -> None:
        if self.stands_still and not self.calm:
            self.met(CLOCK_STANDS)
        else:
            self.now_s += seconds
