"""The records of one registry, in order for the sweep: by the uid of their object, and which are ours. Pure."""

from collections.abc import Iterable, Iterator

import msgspec

from consumer.observation import Observation
from consumer.records import Record, Stamp, base_name, external_id, later_name
from shared.objects import Kind, ObjectKey


class _Shelved(msgspec.Struct, frozen=True):
    """A record with what its stamp says, decoded once. `key` is None where it does not say that it is ours."""

    record: Record
    uid: str
    key: ObjectKey | None


class Shelf:
    """The records of one registry; `cluster_id` says which of them are ours."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._by_uid: dict[str, list[_Shelved]] = {}
        self.count = 0
        self.ours = 0

    def add(self, record: Record) -> None:
        stamp = record.stamp
        key = _key_of(stamp) if stamp is not None and stamp.cluster_id == self._cluster_id else None
        shelved = _Shelved(record, _uid_of(record, stamp), key)
        self._by_uid.setdefault(shelved.uid, []).append(shelved)
        self.count += 1
        self.ours += key is not None

    def of(self, seen: Observation, models: Iterable[str]) -> dict[str, Record]:
        """Return an object's records, found as `lookup.py` finds them at a look: by externalId, else by name."""
        found: dict[str, Record] = {}
        base = base_name(seen.key, seen.uid)
        candidates = [each.record for each in self._by_uid.get(seen.uid, ())]
        for position, model in enumerate(models):
            record = next((each for each in candidates if each.external_id == external_id(seen.uid, model)), None)
            if record is None and position == 0:
                record = next((each for each in candidates if each.name == base), None)
            if record is not None:
                found[record.model_id] = record
            ours = (later_name(seen.key, seen.uid, model), model)
            later = next((each for each in candidates if (each.name, each.model_id) == ours), None)
            if model not in found and later is not None:
                found[model] = later
        return found

    def about(self, uid: str) -> list[Record]:
        """Return the records of a uid that are ours."""
        return [each.record for each in self._by_uid.get(uid, ()) if each.key is not None]

    def deployed(self) -> Iterator[tuple[ObjectKey, str, Record]]:
        """Yield the records that are ours and not UNDEPLOYED, with key and uid of the object."""
        for shelved in self._by_uid.values():
            for each in shelved:
                if each.key is not None and each.record.deployed is not False:
                    yield each.key, each.uid, each.record


def _uid_of(record: Record, stamp: Stamp | None) -> str:
    """Return the uid that a record is about, from whichever place says it."""
    if stamp is not None:
        return stamp.uid
    if record.external_id.startswith("kserve:"):
        return record.external_id.removeprefix("kserve:").partition("/")[0]
    _, _, ours = record.name.partition("/")
    return ours.partition("/")[0] or record.name


def is_ours(record: Record, cluster_id: str) -> bool:
    """Whether a record names this cluster."""
    stamp = record.stamp
    return stamp is not None and stamp.cluster_id == cluster_id


def _key_of(stamp: Stamp) -> ObjectKey | None:
    return ObjectKey(Kind(stamp.kind), stamp.namespace, stamp.name) if stamp.kind in set(Kind) else None
