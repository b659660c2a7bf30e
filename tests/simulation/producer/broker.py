"""JetStream as a model: 64 messages per subject, a dedupe window by message id, purge, and storage that can be lost."""

from collections import deque
from dataclasses import dataclass

from consumer.freshness import Freshness
from producer.publisher import Message
from shared.events import MESSAGE_ID, Event, EventType

PER_SUBJECT = 64
WINDOW_S = 600


@dataclass(eq=False)
class Sending:
    """A message of a producer; `event` is None for a sync marker.

    `known` says how many messages were `stored` when the producer (number `by`) read the inventory from which it
    decided; `sequence` is the message's own place as soon as it has one.
    """

    message: Message
    event: Event | None
    by: int
    known: int
    sequence: int = 0


@dataclass(frozen=True)
class Kept:
    sequence: int
    nth: int  # of all that were ever stored
    sent: Sending
    at_s: int


class Broker:
    """One stream. `told` is what it ever said about objects, `log` the same since the last loss of the storage."""

    def __init__(self) -> None:
        self.created = 1
        self.away = False
        self.told: list[Kept] = []
        self.log: list[Kept] = []
        self.stored = 0
        self.duplicates = 0
        self._sequence = 0
        self._subjects: dict[str, deque[Kept]] = {}
        self._window: dict[str, tuple[int, int]] = {}  # id -> when, sequence

    def publish(self, sent: Sending, now_s: int) -> int:
        """Store a message, and return its sequence; that of the original when the window knows its id."""
        name = sent.message.headers[MESSAGE_ID]
        at_s, sequence = self._window.get(name, (0, 0))
        if sequence and now_s - at_s < WINDOW_S:
            self.duplicates += 1
            return sequence
        self.stored += 1
        self._sequence += 1
        kept = Kept(self._sequence, self.stored, sent, now_s)
        self._subjects.setdefault(sent.message.subject, deque(maxlen=PER_SUBJECT)).append(kept)
        self._window[name] = (now_s, self._sequence)
        if sent.event is not None:
            self.told.append(kept)
            self.log.append(kept)
        return self._sequence

    @property
    def newest(self) -> int:
        """The highest sequence."""
        return self._sequence

    def last(self, subject: str) -> Kept | None:
        kept = self._subjects.get(subject)
        return kept[-1] if kept else None

    def inventory(self) -> list[tuple[Event, Kept]]:
        """The last event of each object."""
        last = (kept[-1] for kept in self._subjects.values() if kept)
        return [(one.sent.event, one) for one in last if one.sent.event is not None]

    def sizes(self) -> list[int]:
        return [len(kept) for kept in self._subjects.values()]

    def purge(self, subject: str, sequence: int) -> None:
        """Take away a subject's messages up to and including that one."""
        kept = self._subjects.get(subject, deque())
        while kept and kept[0].sequence <= sequence:
            kept.popleft()

    def restart(self) -> None:
        """Start the server anew: its window knows only what it finds stored."""
        stored = [one for kept in self._subjects.values() for one in kept]
        self._window = {one.sent.message.headers[MESSAGE_ID]: (one.at_s, one.sequence) for one in stored}

    def lose_storage(self) -> None:
        self.created += 1
        self._sequence = 0
        self._subjects, self._window, self.log = {}, {}, []


def events(kept: list[Kept]) -> list[Event]:
    return [one.sent.event for one in kept if one.sent.event is not None]


def freshness(event: Event) -> Freshness:
    return Freshness(event.epoch, event.resource_version, event.type is EventType.DELETED)
