"""What is in a capture, in numbers. Pure; memory grows with the objects, not with the length of the file."""

from collections import Counter, deque
from typing import Final

import msgspec

from replay.capture import Action, Captured, Facts, Line
from replay.moments import unix_s
from shared.events import EventType
from shared.objects import ObjectKey

DUPLICATES_AMONG: Final = 64  # as many events of one object as a broker keeps


class ObjectStatistics(msgspec.Struct):
    """One object. `uids`: one more for each time that it was made anew. `duplicates`: ids among its last 64."""

    key: ObjectKey
    events: int = 0
    types: Counter[str] = msgspec.field(default_factory=Counter)
    uids: set[str] = msgspec.field(default_factory=set)
    duplicates: int = 0
    first: str = ""
    last: str = ""
    ids: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=DUPLICATES_AMONG))

    def take(self, line: Captured) -> None:
        event = line.event
        self.events += 1
        self.types[event.type.value] += 1
        self.uids.add(event.uid)
        self.duplicates += event.id in self.ids
        self.ids.append(event.id)
        self.first = self.first or event.time
        self.last = event.time


class Statistics:
    """Counts lines as they come. Initial events count as events, but not for span, order and rates."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, ObjectStatistics] = {}
        self.kinds: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.events = self.initial = self.synthetic = self.truncated = 0
        self.facts = self.records_at_start = self.records_at_end = self.actions = 0
        self.first = self.last = ""
        self.first_seq = self.last_seq = 0
        self.gaps = self.missing = self.out_of_order = 0
        self.peak = 0  # events in one second of the clock
        self._second = (0, 0)

    def take(self, line: Line | None) -> None:
        match line:
            case Captured():
                self._event(line)
            case Facts():
                self.facts += 1
                if line.at == "start":
                    self.records_at_start += len(line.records)
                else:
                    self.records_at_end += len(line.records)
            case Action():
                self.actions += 1
            case _:
                pass

    @property
    def duplicates(self) -> int:
        return sum(each.duplicates for each in self.objects.values())

    @property
    def uids(self) -> int:
        return sum(len(each.uids) for each in self.objects.values())

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last event; 0.0 where their times do not say it."""
        first, last = unix_s(self.first), unix_s(self.last)
        return max(0.0, last - first) if first is not None and last is not None else 0.0

    def _event(self, line: Captured) -> None:
        event = line.event
        self.events += 1
        self.kinds[event.key.kind.value] += 1
        self.types[event.type.value] += 1
        self.synthetic += event.synthetic
        self.truncated += event.truncated
        self.objects.setdefault(event.key, ObjectStatistics(event.key)).take(line)
        if line.initial:
            self.initial += 1
        else:
            self._live(line)

    def _live(self, line: Captured) -> None:
        seq, time = line.position.seq, line.position.time or line.event.time
        if not self.first_seq:
            self.first_seq, self.first = seq, time
        elif seq <= self.last_seq:
            self.out_of_order += 1
        elif seq > self.last_seq + 1:
            self.gaps += 1
            self.missing += seq - self.last_seq - 1
        self.last_seq, self.last = max(self.last_seq, seq), time
        second = int(unix_s(time) or 0)
        self._second = (second, self._second[1] + 1 if self._second[0] == second else 1)
        self.peak = max(self.peak, self._second[1])


def moved(statistics: Statistics) -> list[ObjectStatistics]:
    """Return the objects, those with most events first."""
    return sorted(statistics.objects.values(), key=lambda each: (-each.events, each.key))


def as_data(statistics: Statistics) -> dict[str, object]:
    """Return everything for programs."""
    found, span_s = statistics, statistics.span_s
    return {
        "events": found.events,
        "types": {each.value: found.types[each.value] for each in EventType},
        "kinds": dict(sorted(found.kinds.items())),
        "initial": found.initial,
        "synthetic": found.synthetic,
        "truncated": found.truncated,
        "duplicates": found.duplicates,
        "objects": len(found.objects),
        "uids": found.uids,
        "first": found.first,
        "last": found.last,
        "spanS": round(span_s, 3),
        "firstSeq": found.first_seq,
        "lastSeq": found.last_seq,
        "gaps": found.gaps,
        "missing": found.missing,
        "outOfOrder": found.out_of_order,
        "eventsPerS": round((found.events - found.initial) / span_s, 3) if span_s else None,
        "peakPerS": found.peak,
        "actions": found.actions,
        "facts": {"lines": found.facts, "records": {"start": found.records_at_start, "end": found.records_at_end}},
        "perObject": [
            {
                "object": str(each.key),
                "events": each.events,
                "types": {kind.value: each.types[kind.value] for kind in EventType},
                "uids": len(each.uids),
                "duplicates": each.duplicates,
                "first": each.first,
                "last": each.last,
            }
            for each in moved(found)
        ],
    }
