"""What must be true in the end, from what cluster, registry and streams hold then. Pure.

Said in the words of the promise and not in the consumer's: `plan` is not asked what is right. Each claim returns
sentences about what is wrong; none means that it holds.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.chaos.weather import What
from tests.e2e.pipeline import ID, MODEL, STOP, VERSION

Obj = Mapping[str, Any]


class Told(Struct, frozen=True):
    """An event that the stream holds, `sequence` in its order: whose it is, and which labels it shows."""

    uid: str
    resource_version: int
    model: str
    version: str
    sequence: int = 0


class Effect(Struct, frozen=True):
    """A request that changes something. Unix seconds: the fence was asked `asked_at`, it left `sent_at`."""

    asked_at: float
    sent_at: float
    pod: str
    shard: int | None
    what: str


class Leases:
    """Who held a shard when, from all leases that the broker stored, in its order: (Unix seconds, shard, member)."""

    def __init__(self, stored: Iterable[tuple[float, int, str]]) -> None:
        self._stored: dict[int, list[tuple[float, str]]] = defaultdict(list)
        for at, shard, member in stored:
            self._stored[shard].append((at, member))

    def owner(self, shard: int, at: float) -> str:
        """Return who holds the lease at a moment; empty when nobody does."""
        stored = self._stored[shard]
        index = bisect_right(stored, at, key=lambda each: each[0])
        return stored[index - 1][1] if index else ""


def record_findings(living: Sequence[Obj], records: Sequence[Obj]) -> list[str]:
    """Every record right, none twice: a living object's says what it says, all others are UNDEPLOYED."""
    by_uid: dict[str, list[Obj]] = defaultdict(list)
    for record in records:
        by_uid[_stamp(record).get("uid", "")].append(record)
    found = _twice(records)
    for obj in living:
        found += _object_findings(obj, by_uid.pop(obj["metadata"]["uid"], []))
    for uid, left in by_uid.items():
        found += [f"{record['name']}: {uid} is gone, and {bad}" for record in left if (bad := _not_closed(record))]
    return found


def _twice(records: Sequence[Obj]) -> list[str]:
    names = Counter((record["servingEnvironmentId"], record["name"]) for record in records)
    ids = Counter(record.get("externalId") for record in records)
    deployments = Counter((_stamp(record).get("uid"), record["registeredModelId"]) for record in records)
    counts = (*names.items(), *ids.items(), *deployments.items())
    return [f"{what} is there {count} times" for what, count in counts if count > 1]


def _object_findings(obj: Obj, records: list[Obj]) -> list[str]:
    metadata = obj["metadata"]
    who = f"{metadata['namespace']}/{metadata['name']} ({metadata['uid']})"
    model = (metadata.get("labels") or {}).get(MODEL)
    found = [
        f"{who}: model {record['registeredModelId']} is no longer its own, and {bad}"
        for record in records
        if record["registeredModelId"] != model and (bad := _not_closed(record))
    ]
    current = [record for record in records if record["registeredModelId"] == model]
    if model is not None and not current:
        found.append(f"{who}: has no record of model {model}")
    return found + [f"{who}: {bad}" for record in current for bad in _differences(obj, record)]


def _differences(obj: Obj, record: Obj) -> list[str]:
    metadata, status, stamp = obj["metadata"], obj.get("status") or {}, _stamp(record)
    uid, labels = metadata["uid"], metadata["labels"]
    is_stopped = (metadata.get("annotations") or {}).get(STOP) == "true"
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    pairs = {
        "externalId": (record.get("externalId"), f"kserve:{uid}/{labels[MODEL]}"),
        "desiredState": (record.get("desiredState"), "UNDEPLOYED" if is_stopped else "DEPLOYED"),
        "modelVersionId": (record.get("modelVersionId"), labels[VERSION]),
        "url": (_text(record, "url"), status.get("url", "")),
        "uid": (stamp.get("uid"), uid),
        "namespace": (stamp.get("namespace"), metadata["namespace"]),
        "name": (stamp.get("name"), metadata["name"]),
        "ready": (stamp.get("ready"), ready),
        "modelVersion": (stamp.get("modelVersion"), labels[VERSION]),
        "last of history": ((stamp.get("history") or [{}])[-1].get("version"), labels[VERSION]),
        "deleted": (stamp.get("deleted", False), False),
        "end said": (bool(stamp.get("undeployedAt")), is_stopped),
        "the object's id label": (labels.get(ID), record["id"]),
    }
    wrong = [f"{name} is {is_!r}, should be {should!r}" for name, (is_, should) in pairs.items() if is_ != should]
    if int(stamp.get("resourceVersion") or 0) > int(metadata["resourceVersion"]):
        wrong.append(
            f"the record is of version {stamp['resourceVersion']}, the object of {metadata['resourceVersion']}"
        )
    return wrong


def _not_closed(record: Obj) -> str:
    if record.get("desiredState") != "UNDEPLOYED":
        return f"its record is {record.get('desiredState')}"
    return "" if _stamp(record).get("undeployedAt") else "its record does not say when it ended"


def environment_findings(environments: Sequence[Obj], namespaces: Iterable[str]) -> list[str]:
    """One serving environment for each namespace."""
    names = sorted(environment["name"] for environment in environments)
    return [] if names == sorted(namespaces) else [f"the serving environments are {names}"]


def history_findings(told: Sequence[Told], records: Iterable[Obj], buried: frozenset[int] = frozenset()) -> list[str]:
    """Nothing that the stream tells is unrecorded: each model that a uid carried, and each of its versions.

    But what a message said that was `buried` unhandled (its sequence): its dead letter says it.
    """
    by_deployment = {(_stamp(record).get("uid"), record["registeredModelId"]): record for record in records}
    versions: dict[tuple[str, str], set[str]] = defaultdict(set)
    lettered = {(each.uid, each.model, each.version) for each in told if each.sequence in buried}
    for each in told:
        if each.model and (each.uid, each.model, each.version) not in lettered:
            versions[each.uid, each.model].add(each.version)
    found = []
    for (uid, model), shown in sorted(versions.items()):
        record = by_deployment.get((uid, model))
        if record is None:
            found.append(f"{uid} deployed model {model}, and no record says so")
            continue
        stamp = _stamp(record)
        missing = shown - {change["version"] for change in stamp.get("history", ())}
        if missing and not stamp.get("historyCut"):
            found.append(f"{record['name']}: the history lacks {', '.join(sorted(missing))} of model {model}")
    return found


def waiting_findings(waiting: Mapping[str, tuple[int, int]]) -> list[str]:
    """Nothing pending and nothing un-acked, by durable consumer."""
    return [
        f"{name}: {pending} are pending, {unacked} not acknowledged"
        for name, (pending, unacked) in sorted(waiting.items())
        if pending or unacked
    ]


def fence_findings(effects: Iterable[Effect], leases: Leases) -> list[str]:
    """No effect was begun without the lease of its shard."""
    return [
        f"{effect.pod} did {effect.what}, without the lease of shard {effect.shard} at {effect.asked_at:.3f}"
        for effect in effects
        if effect.shard is None or leases.owner(effect.shard, effect.asked_at) != effect.pod
    ]


def caught(effects: Iterable[Effect], leases: Leases) -> int:
    """Return how many effects left when the lease was no longer theirs: paused between the fence and the wire.

    No lease of a client can close that gap, so they are counted and not judged.
    """
    return sum(leases.owner(each.shard, each.sent_at) != each.pod for each in effects if each.shard is not None)


def absent_faults(planned: Mapping[What, int], struck: Mapping[What, int], injected: Mapping[str, int]) -> list[str]:
    """Return which faults have not happened: those of the weather, by their counts, and those of each request."""
    found = [
        f"{what}: struck {struck.get(what, 0)} times instead of {count}"
        for what, count in planned.items()
        if struck.get(what, 0) != count
    ]
    endings = ("error", "lost_reply", *(["outage"] if planned.get(What.REGISTRY_AWAY) else []))
    return found + [f"the registry: no request met {ending}" for ending in endings if not injected.get(ending)]


def _stamp(record: Obj) -> dict[str, Any]:
    return dict(json.loads(_text(record, "isvc-sync") or "{}"))


def _text(record: Obj, name: str) -> str:
    return str((record.get("customProperties") or {}).get(name, {}).get("string_value", ""))
