"""What our property says, from the object and from what it said before. Pure; `plan.py` decides about writing it."""

from msgspec.structs import replace

from consumer.freshness import Freshness, Order, compare
from consumer.observation import Observation, PassedVersion, Wanted
from consumer.records import HISTORY_MAX, Identity, Record, Stamp, VersionChange, is_before
from shared.objects import is_registry_id


def stamp_for(seen: Observation, wanted: Wanted, version: str, record: Record | None, us: Identity) -> Stamp:
    """Return the property of an indexed object's record; `version` is the checked version id, "" for none."""
    before = record.stamp if record else None
    history, cut = _history(before, seen, wanted, version)
    return Stamp(
        cluster=us.cluster,
        cluster_id=us.cluster_id,
        kind=seen.key.kind,
        namespace=seen.key.namespace,
        name=seen.key.name,
        uid=seen.uid,
        epoch=seen.freshness.epoch,
        resource_version=seen.freshness.resource_version,
        deleted=seen.freshness.deleted,
        digest=seen.digest,
        generation=seen.obj.metadata.generation,
        ready=wanted.ready,
        load_failure=wanted.load_failure,
        deployment_mode=wanted.deployment_mode,
        model_format=wanted.model_format,
        storage_uri=wanted.storage_uri,
        model_version=version,
        deployed_at=_deployed_at(seen, wanted, record),
        undeployed_at="" if wanted.deployed else _undeployed_at(seen, record),
        history=history,
        history_cut=cut,
    )


def closing_stamp(seen: Observation, record: Record, us: Identity) -> Stamp:
    """Return the property of a record that is no longer the object's: another model took its place, or none.

    It keeps what it said of its own model; only the end is new. Where states of the new model were passed over, the
    first of them is the end, not the newest: else a crash between this record and the new one would make old news of
    those in between, before any history tells them.
    """
    before = record.stamp
    ending = next((each for each in seen.passed if before is None or _is_after(each, before)), None)
    freshness = seen.freshness if ending is None else Freshness(ending.epoch, ending.resource_version)
    if before is None:
        before = Stamp(
            cluster=us.cluster,
            cluster_id=us.cluster_id,
            kind=seen.key.kind,
            namespace=seen.key.namespace,
            name=seen.key.name,
            uid=seen.uid,
            epoch=seen.freshness.epoch,
            resource_version=seen.freshness.resource_version,
            model_version=record.version_id,
            deployed_at=seen.obj.metadata.creation_timestamp,
        )
    return replace(
        before,
        epoch=freshness.epoch,
        resource_version=freshness.resource_version,
        deleted=freshness.deleted,
        digest=seen.digest,
        ready=False,
        load_failure="",
        undeployed_at=before.undeployed_at or (ending.time if ending else _ended_at(seen)),
    )


def agree(stamp: Stamp, other: Stamp) -> bool:
    """Whether two stamps say the same. What they were written from rides along and does not count."""
    return _content(stamp) == _content(other)


def _content(stamp: Stamp) -> Stamp:
    return replace(stamp, epoch=0, resource_version="", digest="", generation=0)


def _deployed_at(seen: Observation, wanted: Wanted, record: Record | None) -> str:
    """Return when this record's deployment began: the object's creation, or the moment it came back."""
    before = record.stamp if record else None
    if record is None or before is None:
        return "" if wanted.stopped else seen.obj.metadata.creation_timestamp or seen.time
    if before.deployed_at and (record.deployed or not wanted.deployed):
        return before.deployed_at
    return seen.time if wanted.deployed else ""


def _undeployed_at(seen: Observation, record: Record | None) -> str:
    """Return when it ended, which is said once: the deletion itself where that is known, else when we saw it."""
    before = record.stamp if record else None
    return before.undeployed_at if before and before.undeployed_at else _ended_at(seen)


def _ended_at(seen: Observation) -> str:
    return seen.obj.metadata.deletion_timestamp or seen.time


def _history(
    before: Stamp | None, seen: Observation, wanted: Wanted, version: str
) -> tuple[tuple[VersionChange, ...], int]:
    """Return the changes of version, oldest first, and how many were cut off the front.

    Versions that a newer event passed over are in it: "was version X ever deployed" is what the record is for.
    """
    entries = list(before.history) if before else []
    ended = before.undeployed_at if before else ""
    if before and ended and before.deployed_at and wanted.deployed and not entries:
        entries = [VersionChange("", before.resource_version, before.deployed_at)]  # a deployment without any version
    passed = (
        VersionChange(each.version, each.resource_version, each.time)
        for each in seen.passed
        if each.model == wanted.model
        and (each.version == "" or is_registry_id(each.version))
        and not _is_told(each, before)
    )
    for change in (*passed, VersionChange(version, seen.freshness.resource_version, seen.time)):
        if change.version == (entries[-1].version if entries else ""):
            continue
        if entries and ended:
            entries[-1], ended = _before_the_next(entries[-1], ended), ""
        entries.append(change)
    if entries and ended and wanted.deployed and not is_before(entries[-1].time, ended):
        entries[-1] = replace(entries[-1], time=seen.time)  # the label of the time without deployment is deployed now
    cut = max(0, len(entries) - HISTORY_MAX)
    return tuple(entries[cut:]), (before.history_cut if before else 0) + cut


def _before_the_next(last: VersionChange, ended: str) -> VersionChange:
    """Return the last change of a deployment that has ended, now that another one follows.

    A label that changed after the end was never deployed: its time is over when it begins.
    """
    return replace(last, until=ended if is_before(last.time, ended) else last.time)


def _is_told(passed: PassedVersion, before: Stamp | None) -> bool:
    """Whether the record knows a passed version: a try whose answer was lost, or another owner, may have told it."""
    return before is not None and not _is_after(passed, before)


def _is_after(passed: PassedVersion, before: Stamp) -> bool:
    return compare(Freshness(passed.epoch, passed.resource_version), before.freshness) is Order.NEWER
