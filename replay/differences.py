"""Where two plans part: object by object, step by step. Pure.

Two plans of one capture, by two versions of the code, are compared in everything but the ids of records: one more
record would move all that come after it. Two captures are compared by what was decided: what differs between two runs
of one story anyway (times, uids, resourceVersions, events that changed nothing) is left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from consumer.records import PROPERTY
from replay.steps import Step, Taken
from shared.decoding import UNDECODABLE
from shared.objects import ObjectKey

END: Final = "the end"
_QUIET: Final = frozenset({"noop", "duplicate", "stale"})
_ABOUT_A_RUN: Final = frozenset({"resource_version", "cluster_id"})
_STAMP_OF_A_RUN: Final = frozenset(
    {"cluster", "clusterId", "uid", "epoch", "resourceVersion", "digest", "generation", "deployedAt", "undeployedAt"}
)
_NAMED_RECORD: Final = re.compile(r"(record |carries ')(\d+)")

Shape = dict[str, str]  # what is compared of a step, as texts by their path


class Place(msgspec.Struct, frozen=True):
    """A step, as far as a reader needs it to find it again."""

    seq: int
    time: str


class Parting(msgspec.Struct, frozen=True):
    """The first step in which two plans of an object differ; a place is None where that plan has no more steps.

    `what`: the first thing that differs, with both values. `more`: in how many steps after it something differs, too.
    """

    key: ObjectKey
    left: Place | None
    right: Place | None
    what: str
    left_value: str
    right_value: str
    more: int


class Plan:
    """One side: what is compared of each step, by object. `exact`: of two versions of the code over one capture."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self.steps: dict[ObjectKey, list[tuple[Place, bytes]]] = {}
        self._ids: dict[ObjectKey, dict[str, str]] = {}
        self._uids: dict[ObjectKey, dict[str, str]] = {}

    def add(self, step: Step) -> None:
        if not self._exact and not step.taken and step.result in _QUIET:
            return
        ids = self._ids.setdefault(step.key, {})
        uids = self._uids.setdefault(step.key, {})
        if not self._exact:
            uids.setdefault(step.uid, f"uid-{len(uids) + 1}")
        for taken in step.taken:
            if taken.record:
                ids.setdefault(taken.record, f"#{len(ids) + 1}")
        shape = dict(_leaves("", self._compared(step, ids)))
        named = {path: _named(text, ids, uids) for path, text in shape.items()}
        self.steps.setdefault(step.key, []).append((Place(step.seq, step.time), msgspec.json.encode(named)))

    def _compared(self, step: Step, ids: Mapping[str, str]) -> dict[str, Any]:
        told = {
            "event": "look" if step.look else str(step.type),
            "result": step.result,
            "reason": step.reason,
            "model": step.model,
            "version": step.version,
            "registry": step.registry,
            "decisions": [taken.kind for taken in step.taken],
            "decision": [self._decision(taken, ids) for taken in step.taken],
            "notices": list(step.notices),
        }
        if self._exact:
            return {"seq": step.seq, **told}
        del told["notices"]  # of how often something is said, the times decide
        return told

    def _decision(self, taken: Taken, ids: Mapping[str, str]) -> dict[str, Any]:
        fields = {name: value for name, value in taken.fields.items() if self._exact or name not in _ABOUT_A_RUN}
        properties = fields.get("properties")
        if isinstance(properties, Mapping):
            fields["properties"] = {name: self._property(name, value) for name, value in properties.items()}
        return {"kind": taken.kind, "reason": taken.reason, "record": ids.get(taken.record, ""), **fields}

    def _property(self, name: str, value: Any) -> Any:
        """Return a custom property; ours is read, so that one field of it can differ."""
        text = value.get("string_value") if isinstance(value, Mapping) else None
        if not isinstance(text, str):
            return value
        if name != PROPERTY:
            return text
        try:
            stamp = msgspec.json.decode(text, type=dict[str, Any])
        except UNDECODABLE:
            return text
        if self._exact:
            return stamp
        history = [change.get("version") for change in stamp.get("history", ())]
        return {key: part for key, part in stamp.items() if key not in _STAMP_OF_A_RUN} | {"history": history}


def compare(left: Plan, right: Plan) -> list[Parting]:
    """Return where each object's plans part, in the order of the places."""
    found = [
        parting
        for key in left.steps.keys() | right.steps.keys()
        if (parting := _parting(key, left.steps.get(key, []), right.steps.get(key, []))) is not None
    ]
    return sorted(found, key=_order)


def _parting(key: ObjectKey, left: list[tuple[Place, bytes]], right: list[tuple[Place, bytes]]) -> Parting | None:
    first: Parting | None = None
    differing = 0
    for number in range(max(len(left), len(right))):
        ours = left[number] if number < len(left) else None
        theirs = right[number] if number < len(right) else None
        if ours is not None and theirs is not None and ours[1] == theirs[1]:
            continue
        differing += 1
        first = first or _described(key, ours, theirs)
    return None if first is None else msgspec.structs.replace(first, more=differing - 1)


def _described(key: ObjectKey, left: tuple[Place, bytes] | None, right: tuple[Place, bytes] | None) -> Parting:
    if left is None or right is None:
        place, text = left or right or (None, b"{}")
        shape = msgspec.json.decode(text, type=Shape)
        told = f"{shape.get('event', '')}: {shape.get('result', '')}"
        values = (told, END) if right is None else (END, told)
        return Parting(key, place if right is None else None, place if left is None else None, "step", *values, 0)
    ours, theirs = (msgspec.json.decode(text, type=Shape) for _, text in (left, right))
    what = next(path for path in [*ours, *theirs] if ours.get(path) != theirs.get(path))
    return Parting(key, left[0], right[0], what, ours.get(what, ""), theirs.get(what, ""), 0)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every text of a value with its path."""
    parts: Iterable[tuple[Any, Any]]
    match value:
        case Mapping():
            parts = value.items()
        case list() | tuple() if not all(isinstance(each, str) for each in value):
            parts = enumerate(value, 1)
        case list() | tuple():
            yield path, ", ".join(value)
            return
        case bool():
            yield path, "yes" if value else "no"
            return
        case _:
            yield path, str(value)
            return
    for name, part in parts:
        yield from _leaves(f"{path}.{name}" if path else str(name), part)


def _named(text: str, ids: Mapping[str, str], uids: Mapping[str, str]) -> str:
    """Return a text in which records and, of different runs, uids are called by their order."""
    for uid, name in uids.items():
        text = text.replace(uid, name)
    return _NAMED_RECORD.sub(lambda found: found[1] + ids.get(found[2], found[2]), text)


def _order(parting: Parting) -> tuple[float, str, ObjectKey]:
    place = parting.left or parting.right
    assert place is not None, "one side has the step"
    return (place.seq, place.time, parting.key)
