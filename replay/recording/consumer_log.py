"""What consumers did, as their logs tell it: the action lines of a capture. Pure; `record --log` reads the files.

With `LOG_FORMAT=json` each line is one JSON object. It names the consumer, the object and the message (`worker.py`):

    decided                                     `act.py`: what is to be done, and why
    request                                     `exchange.py`: each that writes, with its status
    acknowledged, will try again, dead letter   `handle.py`: what became of the message

An action lasts from its decision to the end of the last request that carried it out. A consumer handles a message once
at a time: lines that name the same three belong together, whatever stands between them.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from replay.capture import Action, Captured
from replay.moments import micros, text_of
from replay.steps import DECISIONS
from shared.decoding import UNDECODABLE

CLOCKS_US: Final = 60_000_000
"""By so much a consumer's clock may be behind the broker's. What was done before concerns another stream's message."""

_BEGIN: Final = b'{"time"'  # of every line of ours (`shared/logs.py`)
_SETTLED: Final = {"acknowledged": "ack", "will try again": "retry", "dead letter": "dead"}
_WRITES: Final = (
    ("POST", "/inference_services", "CreateRecord"),
    ("PATCH", "/inference_services/{id}", "UpdateRecord"),
    ("PATCH", "inferenceservices/{name}", "PatchObject"),
)
_STATUS_DIGITS: Final = 3
_MS_MAX: Final = 86_400_000.0  # a day: what is longer is no duration


class _Line(msgspec.Struct, frozen=True):
    """What is read of a line. `look`: the message names an object, and tells of none of its states."""

    time: str = ""
    message: str = ""
    object: str = ""
    sequence: int = 0
    look: bool = False
    resource_version: str = ""
    member: str = ""
    action: str = ""
    reason: str = ""
    method: str = ""
    route: str = ""
    status: str = ""
    ms: float = 0.0
    log: str = ""

    @property
    def at_hand(self) -> tuple[str, str, int]:
        return self.member, self.object, self.sequence

    @property
    def took_ms(self) -> float:
        return self.ms if 0 <= self.ms <= _MS_MAX else 0.0

    @property
    def answered(self) -> int:
        """The status of the answer, 0 for none."""
        is_status = self.status.isascii() and self.status.isdigit() and len(self.status) == _STATUS_DIGITS
        return int(self.status) if is_status else 0

    def says(self, kind: str, at: int) -> Action:
        """Return the action of that kind that the line tells of. `at`: Unix time in microseconds."""
        return Action(
            event=0 if self.look else self.sequence,
            object=self.object,
            kind=kind,
            reason=self.reason,
            time=text_of(at),
            member=self.member,
        )


_LINE: Final = msgspec.json.Decoder(_Line)


class _Stored(msgspec.Struct, frozen=True):
    """What a message was about, and when it was stored: Unix time in microseconds."""

    object: str
    resource_version: str
    at: int


class Recorded:
    """Which messages a capture holds. Unix times in microseconds.

    `until`: a look that was later is left out. `last`: when the last message was stored.
    """

    def __init__(self) -> None:
        self.until: int | None = None
        self.last = 0
        self._events: dict[int, _Stored] = {}
        self._first: dict[str, int] = {}

    def take(self, line: Captured) -> None:
        """Note an event of the capture."""
        about, at = str(line.event.key), micros(line.position.time or line.event.time) or 0
        self._events[line.position.seq] = _Stored(about, line.event.resource_version, at)
        self._first.setdefault(about, at)
        self.last = max(self.last, at)

    def holds(self, line: _Line, at: int) -> bool:
        """Whether what was done at that time belongs to the capture. A look concerns an object that is in it."""
        if line.look:
            first = self._first.get(line.object)
            return first is not None and at >= first - CLOCKS_US and (self.until is None or at <= self.until)
        stored = self._events.get(line.sequence)
        if stored is None or stored.object != line.object or at < stored.at - CLOCKS_US:
            return False
        return line.resource_version in {"", stored.resource_version}


class ConsumerLog:
    """Reads logs, one after the other. `lines` counts those of our form, `damaged` the remains of such."""

    def __init__(self, recorded: Recorded) -> None:
        self.lines = self.damaged = 0
        self._recorded = recorded
        self._files: list[list[tuple[int, _Line]]] = []

    def read(self, texts: Iterable[bytes]) -> None:
        """Read a file. What stands before a line's object is of those who carried it: `kubectl logs --prefix`, say."""
        found: list[tuple[int, _Line]] = []
        self._files.append(found)
        for text in texts:
            line = self._decoded(text)
            at = None if line is None else micros(line.time)
            if line is None or at is None:
                continue
            self.lines += 1
            if self._recorded.holds(line, at):
                found.append((at, line))

    def actions(self) -> Iterator[Action]:
        """Yield what was done, in the order of time."""
        # Parts of one log may come in any order, and overlap; within one file equal times are in their order.
        files = sorted(filter(None, self._files), key=lambda lines: (lines[0][0], lines[-1][0]))
        once = dict.fromkeys(line for lines in files for line in lines)
        pairing = _Pairing()
        for at, line in sorted(once, key=itemgetter(0)):
            pairing.take(line, at)
        yield from pairing.actions()

    def _decoded(self, text: bytes) -> _Line | None:
        _, brace, rest = text.partition(b"{")
        try:
            line = _LINE.decode(brace + rest)
            # Docker keeps each line as a text in an object of its own.
            return _LINE.decode(line.log) if line.log and not line.message else line
        except UNDECODABLE:
            self.damaged += (brace + rest).startswith(_BEGIN) and text.endswith(b"\n")
            return None


class _Pairing:
    """Finds for each decision the request that carried it out. Lines come in the order of time."""

    def __init__(self) -> None:
        self._done: list[tuple[int, Action]] = []
        self._begun: dict[tuple[str, str, int], tuple[int, Action]] = {}

    def take(self, line: _Line, at: int) -> None:
        if line.message == "decided" and line.action in DECISIONS:
            self._end(line)
            self._begun[line.at_hand] = (at, line.says(line.action, at))
        elif line.message == "request":
            self._request(line, at)
        elif line.message in _SETTLED:
            self._end(line)
            self._done.append((at, line.says(_SETTLED[line.message], at)))

    def actions(self) -> Iterator[Action]:
        for _, action in sorted((*self._done, *self._begun.values()), key=itemgetter(0)):
            yield action

    def _request(self, line: _Line, at: int) -> None:
        kind = _kind(line)
        if kind is None:
            return
        begun = self._begun.get(line.at_hand)
        if (
            begun is None or begun[1].kind != kind
        ):  # a record that a look closes: whoever asked for the look has decided
            self._end(line)
            since = at - round(line.took_ms * 1000)
            begun = (since, line.says(kind, since))
        since, action = begun
        took_ms = max((at - since) / 1000, line.took_ms)
        self._begun[line.at_hand] = (since, replace(action, status=line.answered, ms=took_ms))

    def _end(self, line: _Line) -> None:
        begun = self._begun.pop(line.at_hand, None)
        if begun is not None:
            self._done.append(begun)


def _kind(line: _Line) -> str | None:
    """Return which action a request carries out; None where it reads, or writes something else."""
    for method, end, kind in _WRITES:
        if line.method == method and line.route.endswith(end):
            return kind
    return None
