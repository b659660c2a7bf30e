"""Which versions a registry's records say were deployed when: from records to periods, tables and JSON. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from consumer.records import Record, Stamp, VersionChange, is_before

_TO_THE_SECOND: Final = len("2026-11-30T10:00:00")


class Period(Struct, frozen=True):
    """An object deployed this version (empty: none), from and until a moment in RFC 3339 (empty: it still does)."""

    version: str
    since: str
    until: str


class Deployment(Struct, frozen=True):
    """A record, as far as it tells of versions. No `periods`: it was never deployed."""

    record: Record
    stamp: Stamp
    periods: tuple[Period, ...]

    @property
    def object(self) -> str:
        return f"{self.stamp.kind}/{self.stamp.namespace}/{self.stamp.name}"

    @property
    def began_at(self) -> str:
        return self.periods[0].since if self.periods else self.stamp.undeployed_at

    @property
    def returned_at(self) -> str:
        """When it was deployed again after a stop, with the version that it had; empty when it was not."""
        last = self.periods[-1] if self.periods else None
        is_return = last is not None and not last.until and is_before(last.since, self.stamp.deployed_at)
        return self.stamp.deployed_at if is_return else ""

    def is_of(self, cluster: str) -> bool:
        """Whether it is a cluster's, by its name or its id; empty: any."""
        return cluster in {"", self.stamp.cluster, self.stamp.cluster_id}


def deployment_of(record: Record) -> Deployment | None:
    """Return what a record tells; None where it has no property of ours."""
    stamp = record.stamp
    if stamp is None:
        return None
    changes = stamp.history or (VersionChange(stamp.model_version, stamp.resource_version, stamp.deployed_at),)
    ends = (*(change.time for change in changes[1:]), stamp.undeployed_at)
    periods = (
        Period(change.version, change.time, change.until or end) for change, end in zip(changes, ends, strict=True)
    )
    return Deployment(
        record, stamp, tuple(each for each in periods if not each.until or is_before(each.since, each.until))
    )


def of_object(records: Iterable[Record], namespace: str, name: str, cluster: str) -> list[Deployment]:
    """Return the deployments of an object, in the order in which they began; `cluster` empty: of any cluster."""
    found = [each for record in records if (each := deployment_of(record)) is not None]
    return sorted(
        (
            each
            for each in found
            if (each.stamp.namespace, each.stamp.name) == (namespace, name) and each.is_of(cluster)
        ),
        key=lambda each: each.began_at,
    )


def of_version(records: Iterable[Record], version: str, cluster: str) -> list[tuple[Deployment, Period]]:
    """Return when and where a version was deployed, in that order."""
    found = [
        (each, period)
        for record in records
        if (each := deployment_of(record)) is not None and each.is_of(cluster)
        for period in each.periods
        if period.version == version
    ]
    return sorted(found, key=lambda pair: (pair[1].since, pair[0].object))


def object_listing(deployments: list[Deployment]) -> RenderableType:
    """Return each deployment of an object with its versions, for people."""
    cluster_of = _names_of_clusters(deployments)
    parts = [part for each in deployments for part in (Text(), *_explained(each, cluster_of[each.stamp.cluster_id]))]
    return Group(*parts[1:])


def version_listing(found: list[tuple[Deployment, Period]]) -> Table:
    """Return each period of a version, for people."""
    drawn = _table("Object", "Cluster", "Model", "Since", "Until")
    drawn.columns[0].overflow, drawn.columns[0].no_wrap = "fold", False
    cluster_of = _names_of_clusters(each for each, _ in found)
    for each, period in found:
        cluster, since, until = cluster_of[each.stamp.cluster_id], _second(period.since), _second(period.until) or "now"
        drawn.add_row(Text(each.object, "cyan"), *map(Text, (cluster, each.record.model_id, since, until)))
    return drawn


def _names_of_clusters(deployments: Iterable[Deployment]) -> dict[str, str]:
    """Return what to call each cluster, by its id: its name, and the id where another one has the same name."""
    name_of = {each.stamp.cluster_id: each.stamp.cluster for each in deployments}
    count = Counter(name_of.values())
    return {id_: name if count[name] == 1 else f"{name} ({id_})" for id_, name in name_of.items()}


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


def _explained(each: Deployment, cluster: str) -> Iterable[RenderableType]:
    stamp, record = each.stamp, each.record
    state = "DEPLOYED" if record.deployed else "UNDEPLOYED"
    yield Text.assemble((each.object, "cyan"), f", uid {stamp.uid}, cluster {cluster}")
    yield Text(f"registered model {record.model_id}, record {record.id}: {state}")
    if not each.periods:
        yield Text("  It was never deployed.")
        return
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
