"""What people see of a survey: a table of differences with what would be done, a summary; or JSON. Pure."""

from collections import Counter
from typing import Any

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.naming import doubt
from consumer.sweep.compare import Difference, Triage
from consumer.sweep.survey import Survey


class Shown(Struct, frozen=True):
    """A survey of the cluster of that name and id, and what the sweep would make of it.

    `other_names`: what deployed records of that id call it besides.
    """

    cluster: str
    cluster_id: str
    survey: Survey
    triage: Triage
    other_names: tuple[str, ...] = ()

    @property
    def drift(self) -> tuple[Difference, ...]:
        """What differs, in the order of names; without write-backs that only wait for their time, and `unwatched`."""
        differ = (each for each in self.survey.differences if each.is_drift and not self._is_unwatched(each))
        return tuple(sorted(differ, key=_order))

    @property
    def unwatched(self) -> tuple[Difference, ...]:
        """What would be undeployed in namespaces that the producer leaves out: the stream says nothing of those."""
        return tuple(sorted(filter(self._is_unwatched, self.survey.differences), key=_order))

    def _is_unwatched(self, difference: Difference) -> bool:
        """Whether there is a sync marker, and it does not speak for that namespace."""
        unconfirmed = difference.undeploys and not difference.confirmed
        return unconfirmed and difference.key.kind not in self.survey.unsynced

    @property
    def waiting_ids(self) -> int:
        return sum(not each.is_drift for each in self.survey.differences)

    @property
    def unread(self) -> tuple[str, ...]:
        """The registries that could not be read, each with the reason."""
        return tuple(f"{each.name}: {each.error}" for each in self.survey.registries if each.error)

    @property
    def is_compared(self) -> bool:
        """Whether any registry was read."""
        return not all(each.error for each in self.survey.registries)

    def fate(self, difference: Difference) -> str:
        """Return what keeps a difference from being looked at, in one word; nothing where nothing does."""
        if difference in self.triage.held:
            return "held"
        return "unconfirmed" if difference in self.triage.waiting else ""


def listing(shown: Shown) -> RenderableType:
    """Return everything, for people."""
    parts: list[RenderableType] = [table(shown, shown.drift), Text()] if shown.drift else []
    return Group(*parts, *(Text(sentence) for sentence in sentences(shown)))


def table(shown: Shown, differences: tuple[Difference, ...]) -> Table:
    """Return one row for each difference; names are folded, never cut."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("Object", overflow="fold")
    drawn.add_column("What is wrong", no_wrap=True)
    drawn.add_column("What would be done", overflow="fold")
    for each in differences:
        fate = shown.fate(each)
        repair = "; ".join(each.repairs)
        drawn.add_row(
            Text(str(each.key), "cyan"), Text(each.reason), Text(f"{fate.upper()}: {repair}" if fate else repair)
        )
    return drawn


def sentences(shown: Shown) -> list[str]:
    """Return the summary."""
    survey, differ = shown.survey, len(shown.drift)
    records = sum(each.ours for each in survey.registries)
    where = _many(len(survey.registries) - len(shown.unread), "registry", "registries")
    compared = f"{_many(records, 'record')} in {where}, {_many(survey.objects, 'object')} in the stream"
    nothing = "no difference" if shown.is_compared else "nothing could be compared"
    differing = _many(differ, "difference") if differ else nothing
    found = [f"Cluster {shown.cluster}, id {shown.cluster_id}: {compared}, {differing}."]
    found += doubt(shown.other_names, shown.cluster)
    found += [f"Not read: {each}" for each in shown.unread]
    if survey.skipped:
        found.append(f"{_many(survey.skipped, 'object')} could not be judged: no registry, or it was not read.")
    if shown.waiting_ids:
        found.append(f"{_many(shown.waiting_ids, 'write-back')} of an id must wait, by WRITE_BACK: this is no drift.")
    return [*found, *_about_kept(shown)]


def _about_kept(shown: Shown) -> list[str]:
    found = []
    if shown.triage.held:
        count = _many(len(shown.triage.held), "undeployment")
        found.append(
            f"HELD: {count} at once are too many. The sweep holds them until you release them: isvc-sync release"
        )
    unwatched = shown.unwatched
    if waiting := len(shown.triage.waiting) - len(unwatched):
        count = _many(waiting, "undeployment")
        found.append(f"UNCONFIRMED: {count} must wait until the producer has compared everything (no sync marker).")
    if unwatched:
        names = ", ".join(dict.fromkeys(each.key.namespace for each in unwatched))
        count = _many(len(unwatched), "object")
        found.append(
            f"{count} deployed in namespaces that the producer leaves out, by NAMESPACES ({names}): nothing is known "
            "there, and the records stay. This is no drift."
        )
    return found


def reasons(differences: tuple[Difference, ...]) -> str:
    """Return how many differences of each kind there are, in words."""
    counted = Counter(each.reason.value for each in differences)
    return ", ".join(f"{count} x {reason}" for reason, count in sorted(counted.items()))


def as_data(shown: Shown) -> dict[str, Any]:
    """Return everything, for programs."""
    survey = shown.survey
    return {
        "cluster": shown.cluster,
        "clusterId": shown.cluster_id,
        "registries": survey.registries,
        "objects": survey.objects,
        "skipped": survey.skipped,
        "unsynced": survey.unsynced,
        "deferredWriteBacks": shown.waiting_ids,
        "namedInRecords": shown.other_names,
        "differences": [_difference_as_data(shown, each) for each in shown.drift],
        "unwatched": [_difference_as_data(shown, each) for each in shown.unwatched],
    }


def _difference_as_data(shown: Shown, difference: Difference) -> dict[str, Any]:
    return {
        "kind": difference.key.kind,
        "namespace": difference.key.namespace,
        "name": difference.key.name,
        "uid": difference.uid,
        "reason": difference.reason,
        "repairs": difference.repairs,
        "undeploys": difference.undeploys,
        "kept": shown.fate(difference) or None,
    }


def _order(difference: Difference) -> tuple[str, str, str, str]:
    key = difference.key
    return (key.namespace, key.name, key.kind, difference.uid)


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"
