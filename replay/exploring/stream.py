"""The position of a shard's owner in the stream, for explorations and for the simulation in the tests. Pure.

It is a durable consumer of JetStream as a model: it has an ack floor, redelivers what is not acknowledged in time, and
delivers everything above the floor anew when it is reset, as the real one does at each takeover and reconnect. The
order of one object's messages is kept; another object's may overtake it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from replay.exploring.loop import VirtualLoop
from shared.objects import ObjectKey

ACK_WAIT_S: Final = 30.0
AHEAD: Final = 4  # how many messages may be on the way at once, and so overtake each other


class Storable(Protocol):
    """A message as the stream holds it."""

    @property
    def sequence(self) -> int: ...
    @property
    def key(self) -> ObjectKey: ...


M = TypeVar("M", bound=Storable)
M_contra = TypeVar("M_contra", bound=Storable, contravariant=True)


class Fate(Protocol[M_contra]):
    """What becomes of deliveries."""

    def latency_s(self, message: M_contra, /) -> float:
        """Return how long the next delivery is under way."""

    def strikes(self, fault: str, message: M_contra, /) -> bool:
        """Whether this fault strikes it this time."""


class Durable(Generic[M]):
    """The position of one shard. `take` is the pull of the shard's owner, None while it has none.

    `pending`: sequence to when it is delivered anew. `lost`: what a later message of its object may have overtaken.
    """

    def __init__(self, loop: VirtualLoop, fate: Fate[M]) -> None:
        self.floor = 0
        self.messages: list[M] = []
        self.waiting: list[M] = []
        self.pending: dict[int, float] = {}
        self.counts: Counter[int] = Counter()
        self.lost: set[int] = set()
        self.resets = 0
        self._loop = loop
        self._fate = fate
        self._acked: set[int] = set()
        self._take: Callable[[M, int], Any] | None = None
        self._pumping = False

    def add(self, message: M) -> None:
        self.messages.append(message)
        self.waiting.append(message)
        self._pump()

    def reset(self, take: Callable[[M, int], Any]) -> None:
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
        done = 0
        while done < len(self.messages) and self.messages[done].sequence in self._acked:
            self.floor = self.messages[done].sequence
            done += 1
        del self.messages[:done]

    def in_progress(self, sequence: int) -> None:
        if sequence in self.pending:
            self._expect(sequence)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.pending

    def _pump(self) -> None:
        if self.waiting and self._take is not None and not self._pumping:
            self._pumping = True
            self._loop.call_later(self._fate.latency_s(self.waiting[0]), self._deliver)

    def _deliver(self) -> None:
        self._pumping = False
        if self._take is None or not self.waiting:
            return
        message = self.waiting.pop(self._place())
        count = self._counted(message)
        self._expect(message.sequence)
        if self._fate.strikes("delivery lost", message):
            self.lost.add(message.sequence)
        else:
            self._take(message, count)
            if self._fate.strikes("delivered twice", message):
                self._take(message, self._counted(message))
        self._pump()

    def _counted(self, message: M) -> int:
        self.counts[message.sequence] += 1
        return self.counts[message.sequence]

    def _place(self) -> int:
        """Which message goes next: the first, or one of another object that overtakes it."""
        if self._fate.strikes("overtakes another object's", self.waiting[0]):
            seen: set[ObjectKey] = set()
            for place, message in enumerate(self.waiting[:AHEAD]):
                if message.key not in seen and seen:
                    return place
                seen.add(message.key)
        return 0

    def _expect(self, sequence: int) -> None:
        due_s = self._loop.time() + ACK_WAIT_S
        self.pending[sequence] = due_s
        self._loop.call_at(due_s, self._redeliver, sequence, due_s)

    def _redeliver(self, sequence: int, due_s: float) -> None:
        if self.pending.get(sequence) != due_s:
            return
        del self.pending[sequence]
        self.waiting[:0] = [one for one in self.messages if one.sequence == sequence]
        self._pump()
