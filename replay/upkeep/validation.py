"""Whether a capture is what `isvc-capture/1` promises, line by line. Pure.

docs/isvc-capture-1.schema.json says the same of the form of one line; here is what no schema can say: what lines say of
each other, and an event of itself.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from replay.capture import Action, Captured, CaptureError, Footer, Header, key_of
from replay.files import Capture
from replay.upkeep.redaction import ANONYMOUS
from shared.errors import BadEventError
from shared.reduce import DIGEST_VERSION, digest_of, known_prefixes, reduce_object
from shared.subjects import parse_object_subject


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, with the number of the line."""

    line: int
    what: str


class Validation:
    """Checks one open capture; `lines` and `events` count what was read."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._prefixes = known_prefixes(capture.header.deciding.prefix)
        self._anonymous = capture.header.redaction.profile == ANONYMOUS
        self._seq = 0
        self._ended = False
        self._live = False

    def problems(self) -> Iterator[Problem]:
        """Yield everything that is wrong. What follows a line that does not decode is checked, too."""
        for text, line in self._capture.attempts():
            number = self._capture.number
            if self._ended:
                yield Problem(number, "stands after the footer")
            if isinstance(line, CaptureError):
                yield Problem(number, str(line))
                continue
            for what in self._of(line, text):
                yield Problem(number, what)

    def _of(self, line: object, text: bytes) -> Iterator[str]:
        match line:
            case Header():
                yield "is a second header"
            case Captured():
                yield from self._event(line, text)
            case Footer():
                self._ended = True
                yield from self._footer(line)
            case Action():
                try:
                    key_of(line.object)
                except (CaptureError, msgspec.ValidationError) as error:
                    yield str(error)
            case _:
                pass

    def _event(self, line: Captured, text: bytes) -> Iterator[str]:
        event, seq = line.event, line.position.seq
        told = msgspec.json.decode(text, type=_Told)
        if told.id != event.id:
            yield f"has the id {str(told.id)[:80]!r}, and its attributes make it {event.id!r}"
        if told.subject != f"{event.key.namespace}/{event.key.name}":
            yield f"has the subject {str(told.subject)[:80]!r}, and is about {event.key}"
        if self._capture.header.cluster_id not in {"", event.cluster_id}:
            yield f"comes from the cluster {event.cluster_id[:80]!r}, and the header tells of another one"
        if line.initial and self._live and seq < self._seq:
            yield "is initial, and stands after events of the stream"
        if not line.initial:
            self._live = True
            if seq <= self._seq:
                yield f"has the sequence {seq}, which is not above that of the event before it"
            self._seq = max(self._seq, seq)
        yield from self._place(line)
        yield from self._object(line)

    def _place(self, line: Captured) -> Iterator[str]:
        if not line.position.subject:
            return
        try:
            channel, key = parse_object_subject(line.position.subject)
        except BadEventError as error:
            yield str(error)
            return
        if channel != "evt" or key != line.event.key:
            yield f"stood on the subject of {key}, and is about {line.event.key}"

    def _object(self, line: Captured) -> Iterator[str]:
        event = line.event
        try:
            metadata = line.obj.metadata
            raw = msgspec.json.decode(line.data, type=dict[str, object])
            reduced = reduce_object(raw, self._prefixes)
        except BadEventError as error:
            yield str(error)
            return
        if (metadata.namespace, metadata.name) != (event.key.namespace, event.key.name) or metadata.uid != event.uid:
            yield f"holds the object {metadata.namespace}/{metadata.name} of uid {metadata.uid}, not {event.key}"
        unreduced = sorted(_paths(raw) - _paths(reduced) - {"metadata.hasAnnotations"})
        if unreduced:
            yield f"holds what no reduced object does: {', '.join(unreduced[:3])}"
        elif not (self._anonymous or event.truncated or event.synthetic) and not self._agrees(event.digest, reduced):
            yield "holds another object than its digest was made of"

    def _agrees(self, digest: str, reduced: dict[str, object]) -> bool:
        """Whether a digest is that of the object; one that was made in another way cannot be compared."""
        return not digest.startswith(f"{DIGEST_VERSION}:") or digest == digest_of(reduced, self._prefixes)

    def _footer(self, line: Footer) -> Iterator[str]:
        counted, last = self._capture.events, self._capture.last_seq
        if (line.events, line.last_seq) != (counted, last):
            yield f"tells of {line.events} events up to {line.last_seq}; {counted} up to {last} stand before it"


class _Told(msgspec.Struct):
    """Attributes that are not read elsewhere, whatever they are."""

    id: Any = ""
    subject: Any = ""


def _paths(value: object, path: str = "") -> set[str]:
    """Return the names of all fields that hold a text or a number."""
    if isinstance(value, dict):
        return {each for name, part in value.items() for each in _paths(part, f"{path}.{name}" if path else str(name))}
    if isinstance(value, list):
        return {each for part in value for each in _paths(part, f"{path}.*")}
    return {path}
