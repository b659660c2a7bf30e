"""What people see of a predecessor's leavings: a table, a summary, a question; or JSON. Pure."""

from collections import Counter
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.migration.adoptable import LEFT, Fate, Finding
from cli.migration.adopting import Found
from cli.naming import doubt

DONE_BY: Final = (Fate.ADOPT, Fate.RELABEL, Fate.UNDEPLOY, Fate.STRIP)
"""The fates that are a deed, in the order of the question."""

_DEEDS: Final = {
    Fate.ADOPT: ("adopt", "record"),
    Fate.RELABEL: ("set right", "id"),
    Fate.UNDEPLOY: ("undeploy", "orphan"),
    Fate.STRIP: ("strip the finalizers of", "object"),
}


def is_left(found: Found) -> bool:
    """Whether anything of a predecessor is left."""
    return bool(found.controllers) or any(each.fate in LEFT for each in found.findings)


def listing(found: Found) -> RenderableType:
    """Return everything, for people."""
    parts: list[RenderableType] = [table(found, found.findings), Text()] if found.findings else []
    return Group(*parts, *(Text(sentence) for sentence in sentences(found)))


def table(found: Found, findings: tuple[Finding, ...]) -> Table:
    """Return one row for each finding; names are folded, never cut."""
    several = len(found.registries) > 1
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("Object", overflow="fold")
    drawn.add_column("Record", overflow="fold")
    drawn.add_column("Fate", no_wrap=True)
    drawn.add_column("Why", overflow="fold")
    for each in findings:
        record = each.record_id or "-"
        if several and each.ref is not None:
            record = f"{record} in {each.ref.registry}"
        drawn.add_row(Text(str(each.key), "cyan"), Text(record), Text(each.fate), Text(each.what))
    return drawn


def question(findings: tuple[Finding, ...]) -> str:
    """Return what a person has to say yes to."""
    counted = Counter(each.fate for each in findings)
    deeds = [f"{_DEEDS[fate][0]} {many(counted[fate], _DEEDS[fate][1])}" for fate in DONE_BY if counted[fate]]
    text = ", ".join(deeds)
    return f"{text[0].upper()}{text[1:]}?"


def sentences(found: Found) -> list[str]:
    """Return the summary."""
    read = len(found.registries) - len(found.unread)
    records = sum(each.records for each in found.registries)
    left = sum(each.fate in LEFT for each in found.findings)
    compared = f"{many(records, 'record')} in {many(read, 'registry', 'registries')}, {many(found.objects, 'object')}"
    nothing = "nothing of a predecessor left" if found.is_compared else "nothing could be compared"
    what = f"{many(left, 'thing')} of a predecessor left" if left else nothing
    told = [f"Cluster {found.cluster}, id {found.cluster_id}: {compared}, {what}."]
    told += [
        f"RUNNING: {each.namespace}/{each.name} ({each.why}). Stop it: {each.way_out}." for each in found.controllers
    ]
    if found.unchecked:
        told.append(f"Not known whether a predecessor runs: {found.unchecked}.")
    told += [f"Not read: {each}" for each in found.unread]
    told += doubt(found.other_names, found.cluster)
    return [*told, *_about_orphans(found), *_about_labels(found), *_about_finalizers(found)]


def as_data(found: Found) -> dict[str, Any]:
    """Return everything, for programs."""
    return {
        "cluster": found.cluster,
        "clusterId": found.cluster_id,
        "controllers": found.controllers,
        "controllersUnchecked": found.unchecked or None,
        "registries": found.registries,
        "objects": found.objects,
        "recordsElsewhere": found.elsewhere,
        "otherClusters": found.others,
        "namedInRecords": found.other_names,
        "labelledUnderOtherPrefixes": found.prefixes,
        "orphansMax": found.orphans_max,
        "findings": [
            {
                "kind": each.key.kind,
                "namespace": each.key.namespace,
                "name": each.key.name,
                "uid": each.uid,
                "registry": each.ref.registry if each.ref else None,
                "record": each.record_id or None,
                "finalizers": each.finalizers,
                "fate": each.fate,
                "why": each.what,
            }
            for each in found.findings
        ],
    }


def _about_orphans(found: Found) -> list[str]:
    orphans, held = found.of(Fate.ORPHAN, Fate.HELD, Fate.UNDEPLOY), found.of(Fate.HELD)
    told = []
    if orphans:
        told.append(
            f"{many(len(orphans), 'record')} DEPLOYED without an object here. A predecessor's record does not say its "
            "cluster: if another cluster's predecessor uses this registry, they may be its own, and alive."
        )
    if orphans and found.others:
        told.append(f"Other clusters do write to it: {', '.join(found.others)}.")
    if held:
        told.append(
            f"HELD: {len(held)} at once are more than {found.orphans_max}. If all of these were this cluster's, and "
            f"only then: --undeploy-orphans --max-orphans {len(held)}"
        )
    elif found.of(Fate.ORPHAN):
        told.append("If they were this cluster's, and only then: --undeploy-orphans")
    if found.elsewhere:
        told.append(f"{many(found.elsewhere, 'record')} in environments that are no namespace here: left alone.")
    return told


def _about_labels(found: Found) -> list[str]:
    return [
        f"{many(count, 'object')} labelled under {prefix} only: that is read, but ids are written under LABEL_PREFIX."
        for prefix, count in sorted(found.prefixes.items())
    ]


def _about_finalizers(found: Found) -> list[str]:
    present = found.of(Fate.FINALIZER)
    if not present:
        return []
    return [f"{many(len(present), 'object')} cannot be deleted without a predecessor: --strip-finalizers"]


def many(count: int, one: str, more: str = "") -> str:
    """Return a number with what it counts."""
    return f"{count} {one if count == 1 else more or one + 's'}"
