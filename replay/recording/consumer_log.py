"""What consumers did, as their logs tell it: the action lines of a capture. Pure; `record --log` reads the files.

With `LOG_FORMAT=json` each line is one JSON object. It names the consumer, the object and the message (`worker.py`):

    decided                                     `act.py`: what is to be done, and why
    request                                     `exchange.py`: each that writes, with its status
    acknowledged, will try again, dead letter   `handle.py`: what became of the message

An action lasts from its decision to the end of the last request that carried it out. A consumer handles a message once
at a time: lines that name the same three belong together, whatever stands between them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from replay.capture import Action, Captured
from replay.moments import micros
from shared.decoding import UNDECODABLE

CLOCKS_US: Final = 60_000_000
"""By so much a consumer's clock may be behind the broker's. What was done before concerns another stream's message."""

_SETTLED: Final = {"acknowledged": "ack", "will try again": "retry", "dead letter": "dead"}
_WRITES: Final = (
    ("POST", "/inference_services", "CreateRecord"),
    ("PATCH", "/inference_services/{id}", "UpdateRecord"),
    ("PATCH", "inferenceservices/{name}", "PatchObject"),
)


class _Line(msgspec.Struct):
    """What is read of a line."""

    time: str
    message: str
    object: str = ""
    sequence: int = 0
    member: str = ""
    action: str = ""
    reason: str = ""
    method: str = ""
    route: str = ""
    status: str = ""
    ms: float = 0.0

    def says(self, kind: str) -> Action:
        """Return the action of that kind that the line tells of."""
        return Action(
            event=self.sequence,
            object=self.object,
            kind=kind,
            reason=self.reason,
            time=self.time,
            member=self.member,
        )


_LINE: Final = msgspec.json.Decoder(_Line)
_AtHand = tuple[str, str, int]  # member, object, sequence


class Recorded:
    """Which objects the messages are about that a capture holds, and when they were stored."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[str, int]] = {}
        self._first: dict[str, int] = {}

    def take(self, line: Captured) -> None:
        """Note an event of the capture."""
        about, stored = str(line.event.key), micros(line.position.time or line.event.time) or 0
        self._events[line.position.seq] = (about, stored)
        self._first.setdefault(about, stored)

    def holds(self, sequence: int, about: str, at: int) -> bool:
        """Whether what was done about a message, or a look that has none, belongs to the capture.

        `about`: the object, `at`: Unix time in microseconds.
        """
        if not sequence:
            return about in self._first and at >= self._first[about] - CLOCKS_US
        told, stored = self._events.get(sequence, ("", 0))
        return about == told and at >= stored - CLOCKS_US


class ConsumerLog:
    """Takes lines, in the order in which each consumer wrote them. `lines` counts those that are ours by their form."""

    def __init__(self, recorded: Recorded) -> None:
        self.lines = 0
        self._recorded = recorded
        self._done: list[Action] = []
        self._begun: dict[_AtHand, Action] = {}

    def read(self, texts: Iterable[bytes]) -> None:
        """Take all lines of a file."""
        for text in texts:
            self.take(text)

    def take(self, text: bytes) -> None:
        """Take one line. What stands before its object is of those who carried it: `kubectl logs --prefix`, say."""
        _, brace, rest = text.partition(b"{")
        try:
            line = _LINE.decode(brace + rest)
        except UNDECODABLE:
            return
        at = micros(line.time)
        if at is None:
            return
        self.lines += 1
        if not self._recorded.holds(line.sequence, line.object, at):
            return
        at_hand = (line.member, line.object, line.sequence)
        if line.message == "decided":
            self._end(at_hand)
            self._begun[at_hand] = line.says(line.action)
        elif line.message == "request":
            self._request(at_hand, line, at)
        elif line.message in _SETTLED:
            self._end(at_hand)
            self._done.append(line.says(_SETTLED[line.message]))

    def actions(self) -> Iterator[Action]:
        """Yield what was done, in the order of time."""
        once = dict.fromkeys((*self._done, *self._begun.values()))  # two files may hold the same lines
        yield from sorted(once, key=lambda action: micros(action.time) or 0)

    def _request(self, at_hand: _AtHand, line: _Line, at: int) -> None:
        kind = _kind(line)
        if kind is None:
            return
        begun = self._begun.get(at_hand)
        if begun is None or begun.kind != kind:  # a record that a look closes: whoever asked for the look has decided
            self._end(at_hand)
            begun = line.says(kind)
        took = (at - (micros(begun.time) or at)) / 1000
        status = int(line.status) if line.status.isdigit() else 0
        self._begun[at_hand] = replace(begun, status=status, ms=max(took, line.ms))

    def _end(self, at_hand: _AtHand) -> None:
        begun = self._begun.pop(at_hand, None)
        if begun is not None:
            self._done.append(begun)


def _kind(line: _Line) -> str | None:
    """Return which action a request carries out; None where it reads, or writes something else."""
    for method, end, kind in _WRITES:
        if line.method == method and line.route.endswith(end):
            return kind
    return None
