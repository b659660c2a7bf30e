"""JetStream as a model: the stream, one durable consumer for each shard, and the dead letters.

A durable has an ack floor, redelivers what is not acknowledged in time, and delivers everything above the floor anew
when it is reset, as the real one does at each takeover and reconnect.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shared.events import Event
from shared.objects import ObjectKey
from tests.simulation.consumer.chance import Chance
from tests.simulation.consumer.cluster import Living
from tests.simulation.consumer.loop import VirtualLoop

ACK_WAIT_S = 30.0
AHEAD = 4  # how many messages may be on the way at once, and so overtake each other


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


@dataclass
class Durable:
    """The position of one shard. `take` is the pull of the shard's owner, None while it has none."""

    loop: VirtualLoop
    chance: Chance
    floor: int = 0
    messages: list[Stored] = field(default_factory=list)
    waiting: list[Stored] = field(default_factory=list)
    pending: dict[int, float] = field(default_factory=dict)  # sequence -> when it is delivered anew
    counts: Counter[int] = field(default_factory=Counter)
    lost: set[int] = field(default_factory=set)  # what a later message of its object may have overtaken
    resets: int = 0
    _acked: set[int] = field(default_factory=set)
    _take: Callable[[Stored, int], Any] | None = None
    _pumping: bool = False

    def add(self, message: Stored) -> None:
        self.messages.append(message)
        self.waiting.append(message)
        self._pump()

    def reset(self, take: Callable[[Stored, int], Any]) -> None:
        """Deliver everything above the ack floor to this owner, and count deliveries anew."""
        self.resets += 1
        self._take = take
        self.pending.clear()
        self.counts.clear()
        self._acked.clear()
        self.messages = [one for one in self.messages if one.sequence > self.floor]
        self.waiting = list(self.messages)
        self._pump()

    def leave(self) -> None:
        self._take = None

    def answered(self, sequence: int) -> None:
        """Take an acknowledgement; what was asked for before the last reset may be answered after it."""
        if self.pending.pop(sequence, None) is None:
            return
        self._acked.add(sequence)
        while self.messages and self.messages[0].sequence in self._acked:
            self.floor = self.messages.pop(0).sequence

    def in_progress(self, sequence: int) -> None:
        if sequence in self.pending:
            self._expect(sequence)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.pending

    def _pump(self) -> None:
        if self.waiting and self._take is not None and not self._pumping:
            self._pumping = True
            self.loop.call_later(self.chance.latency_s(), self._deliver)

    def _deliver(self) -> None:
        self._pumping = False
        if self._take is None or not self.waiting:
            return
        message = self.waiting.pop(self._place())
        self.counts[message.sequence] += 1
        self._expect(message.sequence)
        if self.chance.fault("delivery lost"):
            self.lost.add(message.sequence)
        else:
            self._take(message, self.counts[message.sequence])
            if self.chance.fault("delivered twice"):
                self.counts[message.sequence] += 1
                self._take(message, self.counts[message.sequence])
        self._pump()

    def _place(self) -> int:
        """Which message goes next: the first, or one of another object that overtakes it."""
        if self.chance.fault("overtakes another object's"):
            seen: set[ObjectKey] = set()
            for place, message in enumerate(self.waiting[:AHEAD]):
                if message.key not in seen and seen:
                    return place
                seen.add(message.key)
        return 0

    def _expect(self, sequence: int) -> None:
        due_s = self.loop.time() + ACK_WAIT_S
        self.pending[sequence] = due_s
        self.loop.call_at(due_s, self._redeliver, sequence, due_s)

    def _redeliver(self, sequence: int, due_s: float) -> None:
        if self.pending.get(sequence) != due_s:
            return
        del self.pending[sequence]
        self.waiting[:0] = [one for one in self.messages if one.sequence == sequence]
        self._pump()


class Broker:
    """The stream, its durables by shard, and the dead letters by object."""

    def __init__(self, loop: VirtualLoop, chance: Chance, shards: int) -> None:
        self.durables = [Durable(loop, chance) for _ in range(shards)]
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
