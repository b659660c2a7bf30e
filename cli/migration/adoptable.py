"""What a predecessor has left in cluster and registries, and what `isvc-sync adopt` may do about each. Pure.

A predecessor's record does not say which cluster it is of. One whose uid lives here, in the namespace and under the
name that the record says, is ours to adopt. One whose uid does not live here was either this cluster's, and is an
orphan, or is another cluster's that uses the same registry, and is alive there: no list can tell. So orphans are shown
with whatever speaks for or against them, and only a person's word undeploys them.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from cli.objects import Live
from consumer.looks import RecordRef
from consumer.predecessors import FINALIZERS, is_about, named_object
from consumer.records import Record
from consumer.sweep.compare import HOLD_MIN, HOLD_SHARE
from shared.objects import Kind, ObjectKey
from shared.reduce import ID_NAME, REGISTRY_PREFIXES


class Fate(StrEnum):
    """What becomes of a finding; the value is what people read."""

    ADOPT = "adopt"
    RELABEL = "look"  # the record is right, the id on the object is not
    UNDEPLOY = "undeploy"  # an orphan that was chosen
    ORPHAN = "orphan"  # one that was not
    HELD = "held"  # orphans, more at once than is believed
    STRIP = "strip"
    FINALIZER = "finalizer"  # one that was not asked for
    WAITS = "waits"  # for what is not there yet: its event, its registry
    KEEP = "keep"  # nothing that adopt could do


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found of a predecessor: a record, a wrong id, or finalizers.

    `what`: the sentence for people, what would be done or why nothing is. `ref`: the record, where it is about one.
    """

    fate: Fate
    key: ObjectKey
    uid: str
    what: str
    record_id: str = ""
    ref: RecordRef | None = None
    finalizers: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[ObjectKey, str, str, bool]:
        """What stays the same of it between two looks."""
        return (self.key, self.uid, self.record_id, bool(self.finalizers))


class Shelved(msgspec.Struct, frozen=True):
    """A record with its registry's name, and the namespace of this cluster that its environment is; "" for none."""

    registry: str
    record: Record
    namespace: str


class Sorted(msgspec.Struct, frozen=True):
    """The predecessors' records: those of living objects, of nobody who lives here, and those left alone.

    `elsewhere` counts the deployed ones whose environment is no namespace of this cluster.
    """

    living: tuple[tuple[Shelved, Live], ...]
    orphans: tuple[Finding, ...]
    kept: tuple[Finding, ...]
    elsewhere: int


def sort_records(records: Iterable[Shelved], objects: Mapping[str, Live]) -> Sorted:
    """Sort the predecessors' records; `objects` are all InferenceServices of the cluster, by uid."""
    names = {(live.key.namespace, live.key.name) for live in objects.values()}
    living: list[tuple[Shelved, Live]] = []
    orphans: list[Finding] = []
    kept: list[Finding] = []
    elsewhere = 0
    for shelved in records:
        named = named_object(shelved.record)
        if named is None:
            continue
        name, uid = named
        live = objects.get(uid)
        if live is not None and (live.key.namespace, live.key.name) == (shelved.namespace, name):
            living.append((shelved, live))
        elif live is not None:
            why = f"its uid is that of {live.key}, its name or serving environment is not: left alone"
            kept.append(_record(Fate.KEEP, shelved, live.key, uid, why))
        elif shelved.record.deployed is not True:
            continue  # history
        elif not shelved.namespace:
            elsewhere += 1
        else:
            key = ObjectKey(Kind.ISVC, shelved.namespace, name)
            there = "an object of that name lives here, with another uid" if (shelved.namespace, name) in names else ""
            why = (
                there or "no object of that name lives here: another cluster's, if more than this one used the registry"
            )
            orphans.append(_record(Fate.ORPHAN, shelved, key, uid, why))
    return Sorted(tuple(living), tuple(orphans), tuple(kept), elsewhere)


def judged(shelved: Shelved, live: Live, fate: Fate, what: str) -> Finding:
    """Return the finding of a living object's record."""
    return _record(fate, shelved, live.key, live.uid, what)


def orphan_limit(deployed: int) -> int:
    """Return how many orphans of so many deployed records are believed at once, as the sweep counts."""
    return max(HOLD_MIN, deployed // HOLD_SHARE)


def triaged(orphans: Iterable[Finding], limit: int, *, wanted: bool) -> tuple[Finding, ...]:
    """Return the orphans with what becomes of them; more than `limit` are held, all of them."""
    found = tuple(orphans)
    if not wanted:
        return found
    fate = Fate.HELD if len(found) > limit else Fate.UNDEPLOY
    return tuple(msgspec.structs.replace(each, fate=fate) for each in found)


def finalizers_on(objects: Iterable[Live], *, wanted: bool) -> tuple[Finding, ...]:
    """Return the objects that a predecessor's finalizer holds."""
    found = []
    for live in objects:
        theirs = tuple(each for each in live.finalizers if each in FINALIZERS)
        if theirs:
            state = "deleted, and held by " if live.going else ""
            what = f"{state}{', '.join(theirs)}"
            fate = Fate.STRIP if wanted else Fate.FINALIZER
            found.append(Finding(fate=fate, key=live.key, uid=live.uid, what=what, finalizers=theirs))
    return tuple(found)


def wrong_ids(objects: Iterable[Live], records: Iterable[Shelved], key: str) -> tuple[Finding, ...]:
    """Return the objects whose id, label or annotation `key`, names no record, or one that is not about them.

    Ids under other prefixes are a predecessor's: nobody rewrites those, and who reads them must be told.
    """
    by_id: dict[str, list[Record]] = {}
    for each in records:
        by_id.setdefault(each.record.id, []).append(each.record)
    found = []
    for live in objects:
        for name in dict.fromkeys((key, *(prefix.removesuffix("/") + ID_NAME for prefix in REGISTRY_PREFIXES))):
            value = live.obj.metadata.labels.get(name) or live.obj.metadata.annotations.get(name)
            named = by_id.get(value or "", [])
            if not value or any(is_about(record, live.key.name, live.uid) for record in named):
                continue
            of = "is another object's record" if named else "is no record"
            fate = Fate.RELABEL if name == key else Fate.KEEP
            found.append(Finding(fate=fate, key=live.key, uid=live.uid, what=f"{name}={value} {of}"))
    return tuple(found)


def other_prefixed(objects: Iterable[Live], prefix: str) -> dict[str, int]:
    """Return how many objects carry a model label under another prefix only, by prefix."""
    counted: dict[str, int] = {}
    for live in objects:
        labels = live.obj.metadata.labels
        under = [each for each in REGISTRY_PREFIXES if f"{each}registered-model-id" in labels]
        if under and f"{prefix}registered-model-id" not in labels:
            counted[under[0]] = counted.get(under[0], 0) + 1
    return counted


LEFT: Final = frozenset(Fate) - {Fate.KEEP}
"""What counts as left of a predecessor."""


def _record(fate: Fate, shelved: Shelved, key: ObjectKey, uid: str, what: str) -> Finding:
    record = shelved.record
    ref = RecordRef(shelved.registry, uid, record.model_id, unclaimed=True)
    return Finding(fate=fate, key=key, uid=uid, what=what, record_id=record.id, ref=ref)
