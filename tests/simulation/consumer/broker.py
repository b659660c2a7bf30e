"""JetStream as a model: stream, one durable for each shard (`replay/exploring/stream.py`), and dead letters."""

from dataclasses import dataclass
from typing import Any

from replay.exploring.stream import Durable
from shared.events import Event
from shared.objects import ObjectKey
from tests.simulation.consumer.chance import Chance
from tests.simulation.consumer.cluster import Living
from tests.simulation.consumer.loop import VirtualLoop


@dataclass(frozen=True)
class Stored:
    """A message. `event` and `living` are what it says, None for a look or what does not decode."""

    sequence: int
    subject: str
    headers: dict[str, str]
    body: bytes
    key: ObjectKey
    event: Event | None = None
    living: Living | None = None


class Fate:
    """What becomes of deliveries, by the present step's chance."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def latency_s(self, _: Stored) -> float:
        return self._chance.latency_s()

    def strikes(self, fault: str, _: Stored) -> bool:
        return self._chance.fault(fault)


class Broker:
    """The stream, its durables by shard, and the dead letters by object."""

    def __init__(self, loop: VirtualLoop, chance: Chance, shards: int) -> None:
        self.durables = [Durable(loop, Fate(chance)) for _ in range(shards)]
        self.told: list[Stored] = []
        self.dead: dict[ObjectKey, str] = {}
        self._sequence = 0
        self._last: dict[str, Stored] = {}

    def store(
        self, shard: int, subject: str, headers: dict[str, str], body: bytes, key: ObjectKey, **said: Any
    ) -> Stored:
        self._sequence += 1
        stored = Stored(self._sequence, subject, headers, body, key, **said)
        self.told.append(stored)
        self._last[subject] = stored
        self.durables[shard].add(stored)
        return stored

    def last(self, subject: str) -> Stored | None:
        return self._last.get(subject)
