"""The fate of one exploration: every choice of a seed, and every fault that may strike. Pure.

A choice is made from the seed, what it is about, and how often that was asked before; from nothing else. So a seed is
the same exploration in every process, and what is left of a capture fares as before when other events are taken out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from replay.exploring.story import Told

T = TypeVar("T")

# How often each fault strikes where an exploration has it at all: of the requests to a server, ...
REFUSED: Final = "refused"
UNREACHABLE: Final = "never arrives"
ANSWER_LOST: Final = "answer lost"
DIES_BEFORE: Final = "dies before a request"
DIES_AFTER: Final = "dies after a request"
DIES_WRITTEN: Final = "dies between write and ack"
REQUEST_FAULTS: Final[Mapping[str, float]] = {
    REFUSED: 0.06,  # 503, or the webhook's 500
    UNREACHABLE: 0.04,
    ANSWER_LOST: 0.05,
    DIES_BEFORE: 0.01,  # the worker, between two actions
    DIES_AFTER: 0.01,  # with the request on the wire: it lands before the next owner begins, or never
}
SERVERS: Final = ("registry", "Kubernetes", "broker")
# ... of creates and writes, of messages, and of events.
OTHER_FAULTS: Final[Mapping[str, float]] = {
    DIES_WRITTEN: 0.03,
    "another creates the environment": 0.2,  # 409
    "environment not found": 0.05,  # 404, which a database that is away says too
    "conflict for nothing": 0.05,  # 409 of the API server
    "delivered twice": 0.05,
    "overtakes another object's": 0.2,
    "ack lost": 0.04,
    "ack not sent": 0.03,
    "published twice": 0.04,
    "worker killed": 0.03,
    "worker reconnected": 0.02,
    "shard taken over": 0.02,
}
FAULTS: Final[Mapping[str, float]] = {
    **{f"{server}: {fault}": share for server in SERVERS for fault, share in REQUEST_FAULTS.items()},
    **OTHER_FAULTS,
}
_SHARES: Final = (0.1, 0.3, 0.7, 1.0)  # of the faults: so that none always hides another
_PACES: Final = (0.0, 0.02, 0.2, 1.0)  # what becomes of the time between two events
_RANGE: Final = 1 << 56


class Scheduler:
    """Chooses, and counts what struck. `calm`: nothing strikes any more. `pace`: of the time between two events."""

    def __init__(self, seed: int) -> None:
        self.calm = False
        self.struck: Counter[str] = Counter()
        self._seed = seed
        self._asked: Counter[str] = Counter()
        share = self.choice("share of faults", _SHARES)
        self.enabled = frozenset(name for name in FAULTS if self.draw(f"has {name}") < share)
        self.pace = self.choice("pace", _PACES)

    def draw(self, about: str) -> float:
        """Return a number in [0, 1)."""
        self._asked[about] += 1
        text = f"{self._seed} {self._asked[about]} {about}"
        return int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) / _RANGE

    def between(self, low: float, high: float, about: str) -> float:
        return low + (high - low) * self.draw(about)

    def choice(self, about: str, options: Sequence[T]) -> T:
        return options[int(self.draw(about) * len(options))]

    def delay_s(self, about: str) -> float:
        """Return how long something is under way: mostly milliseconds, seldom up to two seconds."""
        kind = self.draw(about)
        if kind < 0.8 or self.calm:
            return self.between(0.001, 0.01, about)
        return self.between(0.05, 0.3, about) if kind < 0.95 else self.between(0.5, 2.0, about)

    def fault(self, name: str, about: str) -> bool:
        """Whether this fault strikes now; never in calm, and not in an exploration without it."""
        if self.calm or name not in self.enabled or self.draw(f"{name}: {about}") >= FAULTS[name]:
            return False
        self.struck[name] += 1
        return True

    # what becomes of deliveries: `exploring_stream.Fate`

    def latency_s(self, message: Told) -> float:
        return self.delay_s(f"delivery of {message.name}")

    def strikes(self, fault: str, message: Told) -> bool:
        return fault in OTHER_FAULTS and self.fault(fault, message.name)
