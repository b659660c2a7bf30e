"""Which versions a registry's records say were deployed when: from records to periods, tables and JSON. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from consumer.records import Record, Stamp, VersionChange

_TO_THE_SECOND: Final = len("2026-11-30T10:00:00")


class Period(Struct, frozen=True):
    """An object carried this version (empty: none), from and until a moment in RFC 3339 (empty: it still does)."""

    version: str
    since: str
    until: str


class Deployment(Struct, frozen=True):
    """A record, as far as it tells of versions."""

    record: Record
    stamp: Stamp
    periods: tuple[Period, ...]

    @property
    def object(self) -> str:
        return f"{self.stamp.kind}/{self.stamp.namespace}/{self.stamp.name}"

    @property
    def returned_at(self) -> str:
        """When it was deployed again after a stop, with the version that it had; empty when it was not."""
        last = self.periods[-1]
        return self.stamp.deployed_at if not last.until and last.since < self.stamp.deployed_at else ""


def deployment_of(record: Record) -> Deployment | None:
    """Return what a record tells; None where it has no property of ours."""
    stamp = record.stamp
    if stamp is None:
        return None
    changes = stamp.history or (VersionChange(stamp.model_version, stamp.resource_version, stamp.deployed_at),)
    ends = (*(change.time for change in changes[1:]), stamp.undeployed_at)
    periods = (Period(change.version, change.time, end) for change, end in zip(changes, ends, strict=True))
    return Deployment(record, stamp, tuple(periods))


def of_object(records: Iterable[Record], namespace: str, name: str, cluster: str) -> list[Deployment]:
    """Return the deployments of an object, in the order in which they began; `cluster` empty: of any cluster."""
    found = [each for record in records if (each := deployment_of(record)) is not None]
    return sorted(
        (
            each
            for each in found
            if (each.stamp.namespace, each.stamp.name) == (namespace, name) and cluster in {"", each.stamp.cluster}
        ),
        key=lambda each: each.periods[0].since,
    )


def of_version(records: Iterable[Record], version: str, cluster: str) -> list[tuple[Deployment, Period]]:
    """Return when and where a version was deployed, in that order."""
    found = [
        (each, period)
        for record in records
        if (each := deployment_of(record)) is not None and cluster in {"", each.stamp.cluster}
        for period in each.periods
        if period.version == version
    ]
    return sorted(found, key=lambda pair: (pair[1].since, pair[0].object))


def object_listing(deployments: list[Deployment]) -> RenderableType:
    """Return each deployment of an object with its versions, for people."""
    parts = [part for each in deployments for part in (Text(), *_explained(each))]
    return Group(*parts[1:])


def version_listing(found: list[tuple[Deployment, Period]]) -> Table:
    """Return each period of a version, for people."""
    drawn = _table("Object", "Cluster", "Model", "Since", "Until")
    drawn.columns[0].overflow, drawn.columns[0].no_wrap = "fold", False
    for each, period in found:
        stamp, since, until = each.stamp, _second(period.since), _second(period.until) or "now"
        drawn.add_row(Text(each.object, "cyan"), *map(Text, (stamp.cluster, each.record.model_id, since, until)))
    return drawn


def as_data(each: Deployment) -> dict[str, Any]:
    """Return a deployment, for programs."""
    stamp = each.stamp
    return {
        "cluster": stamp.cluster,
        "clusterId": stamp.cluster_id,
        "kind": stamp.kind,
        "namespace": stamp.namespace,
        "name": stamp.name,
        "uid": stamp.uid,
        "record": each.record.id,
        "model": each.record.model_id,
        "deployed": each.record.deployed,
        "deployedAt": stamp.deployed_at,
        "undeployedAt": stamp.undeployed_at,
        "versions": each.periods,
        "cut": stamp.history_cut,
    }


def _explained(each: Deployment) -> Iterable[RenderableType]:
    stamp, record = each.stamp, each.record
    state = "DEPLOYED" if record.deployed else "UNDEPLOYED"
    yield Text.assemble((each.object, "cyan"), f", uid {stamp.uid}, cluster {stamp.cluster}")
    yield Text(f"registered model {record.model_id}, record {record.id}: {state}")
    drawn = _table("Version", "Since", "Until")
    for period in each.periods:
        drawn.add_row(*map(Text, (period.version or "none", _second(period.since), _second(period.until) or "now")))
    yield Padding(drawn, (0, 0, 0, 2), expand=False)
    if each.returned_at:
        yield Text(f"  It was stopped meanwhile, and deployed again at {_second(each.returned_at)}.")
    if stamp.history_cut:
        yield Text(f"  {stamp.history_cut} older changes of version are no longer told.")


def _table(*headings: str) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        drawn.add_column(heading, no_wrap=True)
    return drawn


def _second(time: str) -> str:
    """Return a moment in UTC, to the second."""
    return f"{time[:_TO_THE_SECOND]}Z" if time else ""
