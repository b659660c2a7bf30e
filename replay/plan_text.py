"""What a plan looks like in text: a row for each decision, and what it came to in the end. Pure.

The rows are written as they come, so the columns have fixed widths: a longer name pushes its own row to the right.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from consumer.actions import CreateRecord, DeferPatch, PatchObject, UpdateRecord
from replay.capture import ONLY_REGISTRY
from replay.steps import Step, Taken
from shared.objects import ObjectKey

_COLUMNS: Final = (("SEQ", 6), ("TIME", 24), ("OBJECT", 28), ("EVENT", 8), ("RESULT", 9), ("DECISION", 44))
_LAST: Final = "REASON"
_BLANK: Final = ("",) * (len(_COLUMNS) - 1)
_REASON_MAX: Final = 300


class Tally(msgspec.Struct):
    """What a plan came to. `uids`: an object that was made again has two. `records`: how many each registry holds.

    `assumed`: there are no facts about models.
    """

    events: int = 0
    looks: int = 0
    objects: set[ObjectKey] = msgspec.field(default_factory=set)
    uids: set[str] = msgspec.field(default_factory=set)
    results: Counter[str] = msgspec.field(default_factory=Counter)
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    records: dict[str, int] = msgspec.field(default_factory=dict)
    dead_letters: int = 0
    assumed: bool = False

    def add(self, step: Step) -> None:
        if step.look:
            self.looks += 1
        else:
            self.events += 1
            self.results[step.result] += 1
        self.objects.add(step.key)
        self.uids.add(step.uid)
        for taken in step.taken:
            self.decisions[taken.kind] += 1

    def as_data(self) -> dict[str, Any]:
        return {
            "events": self.events,
            "looks": self.looks,
            "objects": len(self.objects),
            "uids": len(self.uids),
            "results": dict(sorted(self.results.items())),
            "decisions": dict(sorted(self.decisions.items())),
            "records": self.records,
            "deadLetters": self.dead_letters,
            "assumed": self.assumed,
        }


def head() -> str:
    return _row(tuple(title for title, _ in _COLUMNS), _LAST)


def rows(step: Step) -> Iterator[str]:
    """Yield one line for each decision, or one that says that there was nothing to decide."""
    first = _place(step)
    decided = [(decision_text(taken), taken.reason + _where(taken)) for taken in step.taken]
    if step.reason and step.reason not in {taken.reason for taken in step.taken}:
        decided.append(("", step.reason))
    for decision, reason in decided or [("-", "")]:
        yield _row((*first, decision), reason)
        first = _BLANK


def decision_text(taken: Taken) -> str:
    """Return what was decided, in a few words."""
    fields = taken.fields
    match taken.kind:
        case CreateRecord.__name__:
            return f"create record {taken.record}: {_content(fields)}"
        case UpdateRecord.__name__:
            return f"update record {taken.record}: {_content(fields)}"
        case PatchObject.__name__:
            return f"write id {taken.record} ({fields.get('cost', '')}): {fields.get('result', '')}"
        case DeferPatch.__name__:
            return f"write id {taken.record} later ({fields.get('cost', '')})"
        case other:
            return other.lower()


def foot(tally: Tally) -> Iterator[str]:
    """Yield what it came to, a sentence a line."""
    results = _counted(tally.results)
    yield f"{_many(tally.events, 'event')} of {_many(len(tally.objects), 'object')}{': ' + results if results else ''}."
    if tally.decisions:
        looks = f" ({_many(tally.looks, 'look')} at ids that were due)" if tally.looks else ""
        yield f"{_many(tally.decisions.total(), 'decision')}: {_counted(tally.decisions)}{looks}."
    for name, count in sorted(tally.records.items()):
        yield f"Registry {clean(name)} ends with {_many(count, 'record')}."
    if tally.dead_letters:
        yield f"{_many(tally.dead_letters, 'dead letter')} at the end."
    if tally.assumed:
        yield ASSUMED


ASSUMED: Final = (
    "The capture has no facts about models and versions: those that labels name were taken to exist (see --strict)."
)


def clean(text: str) -> str:
    """Return text in one line, without what a terminal would obey."""
    if text.isprintable() and "  " not in text:
        return text
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(each if each.isprintable() else "?" for each in line)


def _place(step: Step) -> tuple[str, ...]:
    event = "look" if step.look else "initial" if step.initial else str(step.type)
    return (str(step.seq), _short(step.time), f"{step.key.namespace}/{step.key.name}", event, step.result)


def _where(taken: Taken) -> str:
    """Return which registry it is about, where there are several."""
    return "" if taken.registry in {"", ONLY_REGISTRY} or not taken.record else f" [{taken.registry}]"


def _short(time: str) -> str:
    """Return an RFC 3339 time in UTC to the millisecond, as far as it is spelt so."""
    whole, dot, part = time.removesuffix("Z").partition(".")
    return f"{whole}.{part[:3].ljust(3, '0')}Z" if time.endswith("Z") else f"{whole}{dot}{part}"


def _content(fields: dict[str, Any]) -> str:
    parts = [f"model {fields['model_id']}"] if fields.get("model_id") else []
    parts += [f"version {fields['version_id']}"] if fields.get("version_id") else []
    return ", ".join([*parts, "deployed" if fields.get("deployed") else "undeployed"])


def _row(cells: tuple[str, ...], last: str) -> str:
    padded = (clean(cell).ljust(width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    return "  ".join((*padded, clean(last)[:_REASON_MAX])).rstrip()


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


def _many(count: int, one: str) -> str:
    return f"{count} {one if count == 1 else one + 's'}"
