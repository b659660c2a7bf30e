"""What removing our id from each object would do, and what `isvc-sync leave` may do about it. Pure.

An id is ours where a record with our property says that it is that object's. What a person or a predecessor has put
there stays. KServe copies labels into pod templates when they go as well as when they come, so a removal has the cost
classes of a write (`consumer/writeback.py`).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from cli.objects import Live
from consumer.records import Record
from consumer.writeback import KServeLists, Target, WriteBackForm, WriteCost, cost_of, never_reaches_pods


class Fate(StrEnum):
    """What becomes of an id; the value is what people read."""

    REMOVE = "remove"
    RESTARTS = "restarts"  # pods, so it stays until that is asked for
    GOING = "going"  # with its object, which is being deleted
    UNKNOWN = "unknown"  # no record was found, but not every registry was read
    FOREIGN = "not ours"


LEFT: Final = frozenset({Fate.REMOVE, Fate.RESTARTS, Fate.UNKNOWN})


class Ground(msgspec.Struct, frozen=True):
    """What decides: the key, KServe's lists, whose ids are ours, and whether pods may restart.

    `ours`: pairs of record id and uid. `complete`: whether every registry was read.
    """

    key: str
    lists: KServeLists
    ours: frozenset[tuple[str, str]]
    complete: bool
    restart_pods: bool


class Mark(msgspec.Struct, frozen=True):
    """An id on an object, as label or as annotation, and what its removal costs."""

    live: Live
    form: WriteBackForm
    key: str
    value: str
    cost: WriteCost
    fate: Fate

    @property
    def restarts(self) -> str:
        """What a removal would do to pods, for people."""
        copies = self.live.obj.status.model_status.copies
        match self.cost:
            case WriteCost.FREE:
                return "nothing"
            case WriteCost.POD_START:
                return "one pod start, no serving pod"
            case WriteCost.RESTART:
                count = f" ({copies.total_copies} of the predictor)" if copies is not None else ""
                return f"its serving pods{count}"

    @property
    def identity(self) -> tuple[str, WriteBackForm]:
        return (self.live.uid, self.form)


def ours_of(records: Iterable[Record], cluster_id: str) -> frozenset[tuple[str, str]]:
    """Return record id and uid of each record that is this cluster's."""
    stamps = ((record.id, record.stamp) for record in records)
    return frozenset((number, stamp.uid) for number, stamp in stamps if stamp and stamp.cluster_id == cluster_id)


def marks_on(live: Live, ground: Ground) -> list[Mark]:
    """Return the ids that an object carries, in either form."""
    metadata = live.obj.metadata
    places: Mapping[WriteBackForm, dict[str, str]] = {
        WriteBackForm.LABEL: metadata.labels,
        WriteBackForm.ANNOTATION: metadata.annotations,
    }
    found = []
    for form, carried in places.items():
        if ground.key in carried:
            value = carried[ground.key]
            cost = cost_of(live.obj, _target(ground, form))
            found.append(Mark(live, form, ground.key, value, cost, _fate(live, value, cost, ground)))
    return found


def removal(mark: Mark, lists: KServeLists) -> list[dict[str, Any]]:
    """Return the JSON patch that removes exactly this id from exactly this object.

    Where the cost follows from the object's state, the patch holds for exactly the state that it was judged from.
    """
    metadata = mark.live.obj.metadata
    place = "labels" if mark.form is WriteBackForm.LABEL else "annotations"
    path = f"/metadata/{place}/{mark.key.replace('~', '~0').replace('/', '~1')}"
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}]
    if not never_reaches_pods(mark.live.obj, Target(mark.key, mark.form, lists)):
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version})
    return [*operations, {"op": "test", "path": path, "value": mark.value}, {"op": "remove", "path": path}]


def _fate(live: Live, value: str, cost: WriteCost, ground: Ground) -> Fate:
    if (value, live.uid) not in ground.ours:
        return Fate.FOREIGN if ground.complete else Fate.UNKNOWN
    if live.going:
        return Fate.GOING
    return Fate.REMOVE if cost is WriteCost.FREE or ground.restart_pods else Fate.RESTARTS


def _target(ground: Ground, form: WriteBackForm) -> Target:
    return Target(ground.key, form, ground.lists)
