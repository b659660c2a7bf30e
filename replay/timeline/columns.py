"""The columns of the timeline page, filled event by event; texts shortened to what a person reads. Pure.

Nothing is escaped here: texts are what the capture says, and the page treats them as such.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from consumer.records import PROPERTY
from replay.capture import Action, Captured
from replay.moments import micros
from replay.steps import Step, Taken
from replay.timeline.data import INITIAL, LOOK, SYNTHETIC, TERMINATING, TRUNCATED, Actions, Events
from shared.errors import BadEventError
from shared.objects import ObjectKey, ReducedObject

TEXT_CHARS_MAX: Final = 600
FIELD_CHARS_MAX: Final = 120
FIELDS_MAX: Final = 10

_CONDITION: Final = "Ready"
_PROPERTIES: Final = "properties"
# What cannot be seen, or turns the direction of what is around it: it could make one name look like another.
_HIDDEN: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class Seen(msgspec.Struct, frozen=True):
    """An event, or a look, with what was decided. `at`: Unix time in us; `number`: its place; others as in `Events`."""

    at: int
    number: int
    step: Step
    flags: int = LOOK
    state: str = ""
    stored: int | None = None

    @classmethod
    def of(cls, at: int, number: int, step: Step, line: Captured | None) -> "Seen":
        """Keep what is shown of an event; `line` is None for a look."""
        if line is None:
            return cls(at, number, step)
        obj, stored = _object(line), micros(line.position.time)
        return cls(at, number, step, _flags(line, obj), _state(obj), None if stored is None else stored - at)


class _Texts:
    """Each text once. The empty one is number 0."""

    def __init__(self) -> None:
        self.all = [""]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        text = shortened(_HIDDEN.sub(_escape, text), TEXT_CHARS_MAX)
        if text not in self._numbers:
            self._numbers[text] = len(self.all)
            self.all.append(text)
        return self._numbers[text]


class Columns:
    """Takes events in the order of time, then actions. `start`: the Unix time in us that others are told from."""

    def __init__(self, start: int) -> None:
        self.texts = _Texts()
        self.objects: list[tuple[int, int, int]] = []
        self.events = Events()
        self.actions = Actions()
        self._start = start
        self._places: dict[ObjectKey, int] = {}
        self._begins: list[int] = []
        self._by_seq: dict[int, int] = {}

    def event(self, seen: Seen) -> None:
        number, step, columns = self.texts.number, seen.step, self.events
        self._by_seq.setdefault(step.seq, len(columns.at))
        columns.object.append(self._object(step.key))
        columns.at.append(seen.at - (self._begins[-1] if self._begins else self._start))
        self._begins.append(seen.at)
        columns.seq.append(step.seq)
        columns.type.append(number(step.type))
        columns.uid.append(number(step.uid))
        columns.resource_version.append(number(step.resource_version))
        columns.flags.append(seen.flags)
        columns.result.append(number(step.result))
        columns.reason.append(number(step.reason))
        columns.model.append(number(step.model))
        columns.version.append(number(step.version))
        columns.registry.append(number(step.registry))
        columns.state.append(number(seen.state))
        columns.stored.append(seen.stored)
        columns.latency.append(None)
        columns.retries.append(0)
        columns.taken.append([self._taken(each) for each in step.taken])
        columns.notices.append([number(each) for each in step.notices])

    def action(self, at: int, action: Action, key: ObjectKey) -> None:
        columns, took = self.actions, round(action.ms * 1000)
        event = self._by_seq.get(action.event, -1) if action.event else -1
        columns.event.append(event)
        columns.object.append(self._object(key))
        columns.at.append(at - self._start)
        columns.us.append(took)
        columns.kind.append(self.texts.number(action.kind))
        columns.reason.append(self.texts.number(action.reason))
        columns.status.append(action.status)
        columns.member.append(self.texts.number(action.member))
        if event >= 0:
            self._happened(event, action, at + took)

    def _happened(self, event: int, action: Action, end: int) -> None:
        """Note at an event what was done about it. What was done tells more than what would be decided again."""
        columns = self.events
        latency = end - self._begins[event]
        if action.time and latency >= (columns.latency[event] or 0):  # below zero: two clocks that do not agree
            columns.latency[event] = latency
        columns.retries[event] += action.kind == "retry"
        if action.kind == "dead":
            columns.result[event] = self.texts.number("dead")
            columns.reason[event] = self.texts.number(action.reason) or columns.reason[event]

    def _object(self, key: ObjectKey) -> int:
        if key not in self._places:
            self._places[key] = len(self.objects)
            number = self.texts.number
            self.objects.append((number(key.kind), number(key.namespace), number(key.name)))
        return self._places[key]

    def _taken(self, taken: Taken) -> tuple[int, int, int, int, int]:
        told = (taken.kind, taken.reason, taken.record, taken.registry, _fields(taken.fields))
        kind, reason, record, registry, fields = map(self.texts.number, told)
        return kind, reason, record, registry, fields


def shortened(text: str, chars_max: int) -> str:
    """Return a text that is not longer, with a mark where it was."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _object(captured: Captured) -> ReducedObject | None:
    try:
        return captured.obj
    except BadEventError:  # the step says so: it is a dead letter
        return None


def _flags(captured: Captured, obj: ReducedObject | None) -> int:
    terminating = obj is not None and obj.metadata.deletion_timestamp != ""
    marks = (
        (captured.initial, INITIAL),
        (captured.event.synthetic, SYNTHETIC),
        (captured.event.truncated, TRUNCATED),
        (terminating, TERMINATING),
    )
    return sum(bit for is_set, bit in marks if is_set)


def _state(obj: ReducedObject | None) -> str:
    if obj is None:
        return ""
    ready = obj.status.condition(_CONDITION)
    readiness = (
        [f"{_CONDITION}={ready.status}" + (f" ({ready.reason})" if ready.reason else "")] if ready.status else []
    )
    return _lines((*(f"{name}={value}" for name, value in sorted(obj.metadata.labels.items())), *readiness))


def _fields(fields: dict[str, Any]) -> str:
    """Return what an action holds. Our own property is left out: it repeats the event."""
    plain = {name: value for name, value in fields.items() if name != _PROPERTIES}
    properties = fields.get(_PROPERTIES)
    others = properties.items() if isinstance(properties, dict) else ()
    plain |= {f"property {name}": _plain_value(value) for name, value in others if name != PROPERTY}
    return _lines(f"{name}: {_text(value)}" for name, value in plain.items() if value not in ("", None, {}, []))


def _plain_value(tagged: Any) -> Any:
    return tagged.get("string_value", tagged) if isinstance(tagged, dict) else tagged


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _lines(lines: Iterable[str]) -> str:
    """Return lines for people; a line end inside one would look like another."""
    told = [shortened(" ".join(line.split()), FIELD_CHARS_MAX) for line in lines]
    return "\n".join(told[:FIELDS_MAX])
