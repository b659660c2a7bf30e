"""Fate of one history: every choice comes from here, and every fault is counted."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

# How often each fault occurs where a history has it at all: of the requests to a server, ...
REQUEST_FAULTS: Mapping[str, float] = {
    "refused": 0.06,  # 503, or the webhook's 500
    "never arrives": 0.04,
    "answer lost": 0.05,
    "late": 0.02,  # arrives when nobody waits for its answer any more
    "dies before": 0.01,  # the process, between two actions
    "dies after": 0.01,  # with the request on the wire
}
SERVERS = ("registry", "Kubernetes", "broker")
# ... of creates that somebody else comes before, of messages, and of events.
OTHER_FAULTS: Mapping[str, float] = {
    "another creates the environment": 0.2,
    "a predecessor creates the record": 0.1,
    "conflict for nothing": 0.05,
    "delivery lost": 0.03,
    "delivered twice": 0.05,
    "overtakes another object's": 0.2,
    "ack lost": 0.04,
    "ack not sent": 0.03,
    "published twice": 0.04,
    "published late": 0.05,
}
FAULTS: Mapping[str, float] = {
    **{f"{server}: {fault}": share for server in SERVERS for fault, share in REQUEST_FAULTS.items()},
    **OTHER_FAULTS,
}
CAREFUL = "write-back only where it is safe"
OPTIONS = (CAREFUL,)


class Chance:
    """The present step's generator: each step brings a seed of its own, so that a step taken out leaves the others."""

    def __init__(self, enabled: frozenset[str]) -> None:
        self.enabled = enabled
        self.faults: Counter[str] = Counter()
        self.calm = False
        self._random = random.Random(0)

    def begin(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def randint(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def choice(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def share(self, share: float) -> bool:
        return self._random.random() < share

    def latency_s(self) -> float:
        """How long something is under way: mostly milliseconds, seldom seconds."""
        kind = self._random.random()
        if kind < 0.8 or self.calm:
            return self.between(0.001, 0.01)
        return self.between(0.05, 0.3) if kind < 0.95 else self.between(1.0, 4.0)

    def fault(self, name: str) -> bool:
        """Whether this fault strikes now; never in calm, and not in a history without it."""
        if self.calm or name not in self.enabled or not self.share(FAULTS[name]):
            return False
        self.met(name)
        return True

    def met(self, name: str) -> None:
        self.faults[name] += 1
