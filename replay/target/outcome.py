"""What a registry holds after a replay, against what the capture says that it held in the end. Pure.

Compared is what a record says of its object. Ids are the registry's own, times count as there or not there. Left out is
what depends on which states were passed over, since a newer event replaces one that waits: what rides along with a
record and never causes a write (epoch, resourceVersion, digest, generation), and whether it was ever deployed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from consumer.records import PROPERTY, URL_PROPERTY, Record
from replay.capture import Facts, RecordFact
from shared.objects import ObjectKey


class Held(msgspec.Struct, frozen=True):
    """A record and the name of its serving environment."""

    record: Record
    environment: str


class Difference(msgspec.Struct, frozen=True):
    """One thing that a record says otherwise than the capture. An empty text: nothing."""

    field: str
    captured: str
    replayed: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one object, or of one of its records.

    `record` is None where there is none. `agrees` is None where the capture says nothing to compare with. `dead`: the
    reason why an event of the object is among the dead letters.
    """

    key: ObjectKey
    record: Record | None = None
    environment: str = ""
    agrees: bool | None = None
    differences: tuple[Difference, ...] = ()
    dead: str = ""


def rows(
    objects: Mapping[ObjectKey, Iterable[str]],
    held: Sequence[Held],
    expected: Sequence[Facts] | None,
    dead: Mapping[str, str],
) -> tuple[Row, ...]:
    """Return what became of the objects (their uids by key), in the order of their keys.

    `expected`: what the capture says of the end, None where it cannot be compared with that. `dead`: reasons by key.
    """
    compared = expected is not None
    facts = [fact for each in expected or () for fact in each.records]
    found = []
    for key in sorted(objects):
        uids = set(objects[key])
        wanted = {_name(fact.environment, fact.name): fact for fact in facts if _uid(fact) in uids}
        mine = {_name(each.environment, each.record.name): each for each in held if _uid(each.record) in uids}
        reason = dead.get(str(key), "")
        found += [
            _row(key, mine.get(name), wanted.get(name), compared=compared, dead=reason)
            for name in sorted(wanted.keys() | mine.keys())
        ]
        if not wanted and not mine:
            found.append(Row(key=key, agrees=True if compared else None, dead=reason))
    return tuple(found)


def _row(key: ObjectKey, held: Held | None, wanted: RecordFact | None, *, compared: bool, dead: str) -> Row:
    after = {} if held is None else content(held.record, held.environment)
    before = {} if wanted is None else content(_record(wanted), wanted.environment)
    differences = tuple(
        Difference(field, before.get(field, ""), after.get(field, ""))
        for field in sorted(before.keys() | after.keys())
        if before.get(field, "") != after.get(field, "")
    )
    return Row(
        key=key,
        record=None if held is None else held.record,
        environment="" if held is None else held.environment,
        agrees=not differences if compared else None,
        differences=differences if compared else (),
        dead=dead,
    )


def content(record: Record, environment: str) -> dict[str, str]:
    """Return what a record says, as texts by field, without what differs from one registry and run to the next."""
    stamp = record.stamp
    users = {name: value for name, value in record.properties.items() if name not in {PROPERTY, URL_PROPERTY}}
    said: dict[str, Any] = {
        "name": record.name,
        "environment": environment,
        "model": record.model_id,
        "version": record.version_id,
        "runtime": record.runtime,
        "state": "" if record.deployed is None else "DEPLOYED" if record.deployed else "UNDEPLOYED",
        "url": record.url,
        "properties": msgspec.json.encode(users, order="deterministic").decode() if users else "",
    }
    if stamp is not None:
        said |= {
            "ready": str(stamp.ready).lower(),
            "deleted": str(stamp.deleted).lower(),
            "loadFailure": stamp.load_failure,
            "deploymentMode": stamp.deployment_mode,
            "modelFormat": stamp.model_format,
            "storageUri": stamp.storage_uri,
            "modelVersion": stamp.model_version,
            "undeployedAt": "a time" if stamp.undeployed_at else "",
            "history": ", ".join(version or "none" for version in stamp.versions),
        }
    return said


def _record(fact: RecordFact) -> Record:
    return Record(
        id=fact.id,
        name=fact.name,
        external_id=fact.external_id,
        environment_id="",
        model_id=fact.model_id,
        version_id=fact.version_id,
        runtime=fact.runtime,
        deployed=fact.deployed,
        properties=fact.properties,
    )


def _uid(record: Record | RecordFact) -> str:
    """Return the uid that a record is about: by its externalId, else by its name, `<name>/<uid>`."""
    if record.external_id:
        return record.external_id.removeprefix("kserve:").partition("/")[0]
    return record.name.split("/")[1] if "/" in record.name else ""


def _name(environment: str, name: str) -> str:
    return f"{environment}\n{name}"
