"""Find our ids on the objects of a cluster, and take them off: reads and patches; `departures.py` decides.

The one place beside the shards' owners that patches objects. It may, because it does so only while no owner would write
the same again.
"""

from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

import msgspec

from cli.migration.departures import LEFT, Fate, Ground, Mark, marks_on, ours_of, removal
from cli.naming import other_names
from cli.objects import Live, Objects, name_registries
from cli.reading import Cluster
from consumer.records import Record
from shared.errors import ConflictError, IsvcSyncError, NotFoundError, PermanentError
from shared.objects import Kind

PATCH_TRIES: Final = 3  # in the noisy first second of an object KServe writes faster than we read


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found.

    `members`: the consumers that run. `unread`: registries, each with the reason. `other_names`: what deployed records
    of this cluster's id call it besides.
    """

    cluster: str
    cluster_id: str
    objects: int
    marks: tuple[Mark, ...]
    unread: tuple[str, ...]
    members: tuple[str, ...]
    other_names: tuple[str, ...] = ()

    def of(self, *fates: Fate) -> tuple[Mark, ...]:
        return tuple(each for each in self.marks if each.fate in fates)

    @property
    def is_left(self) -> bool:
        return any(each.fate in LEFT for each in self.marks)


class Leaver:
    """One connection's worth of work. Raises the errors of the adapters."""

    def __init__(self, cluster: Cluster, objects: Objects, *, restart_pods: bool) -> None:
        self._cluster = cluster
        self._objects = objects
        self._restart_pods = restart_pods
        self._ground: Ground | None = None

    async def find(self, members: Iterable[str]) -> Found:
        """Look at everything."""
        live = [each for kind in Kind for each in await self._live(kind)]
        carrying = [each for each in live if self._carries(each)]
        await name_registries(self._cluster.registries, carrying)
        records, unread = await self._records() if carrying else ([], [])
        us, target = self._cluster.deciding.us, self._cluster.deciding.target
        ours = ours_of(records, us.cluster_id)
        ground = Ground(target.key, target.lists, ours, complete=not unread, restart_pods=self._restart_pods)
        self._ground = ground
        marks = sorted((m for each in carrying for m in marks_on(each, ground)), key=lambda m: (m.live.key, m.form))
        return Found(
            cluster=us.cluster,
            cluster_id=us.cluster_id,
            objects=len(live),
            marks=tuple(marks),
            unread=tuple(unread),
            members=tuple(sorted(members)),
            other_names=other_names(records, us),
        )

    async def remove(self, mark: Mark) -> str:
        """Remove an id; return what went wrong, "" when it is gone.

        When the object moved on, it is read and judged again: a removal that would by now restart pods is not made.
        """
        assert self._ground is not None, "what was not found is not removed"
        current: Mark | None = mark
        for _ in range(PATCH_TRIES):
            if current is None:
                return ""
            if current.fate is not Fate.REMOVE:
                return f"by now its removal would restart {current.restarts}"
            try:
                await self._cluster.kubernetes.patch(mark.live.key, removal(current, self._ground.lists))
            except ConflictError:
                current = await self._again(mark, self._ground)
            except PermanentError as error:  # an admission webhook's word on this object, and no other
                return str(error)
            else:
                return ""
        return "it changes all the time, run this again" if current is not None else ""

    async def _again(self, mark: Mark, ground: Ground) -> Mark | None:
        """Return the id as it stands now; None when that uid is gone, or goes, or carries it no longer."""
        raw = await self._cluster.kubernetes.get(mark.live.key)
        live = None if raw is None else self._objects.live(raw, mark.live.key.kind)
        if live is None or live.uid != mark.live.uid:
            return None
        found = [each for each in marks_on(live, ground) if each.form is mark.form]
        return next((each for each in found if each.fate in LEFT), None)

    async def _live(self, kind: Kind) -> list[Live]:
        try:
            return await self._objects.of(kind)
        except NotFoundError:
            return []  # not installed: nothing carries anything

    async def _records(self) -> tuple[list[Record], list[str]]:
        """Return the records of all registries, and the registries that could not be read."""
        records: list[Record] = []
        unread: list[str] = []
        lookups = await self._cluster.registries.everywhere()
        if not lookups:
            unread.append("no registry is known, see REGISTRY_URL and REGISTRY_NAMESPACES")
        for lookup in lookups:
            try:
                async with aclosing(lookup.place.registry.all_records()) as every:
                    records += [record async for record in every]
            except IsvcSyncError as error:
                name = lookup.place.name
                unread.append(f"{name}: {await self._cluster.trouble(name, str(error))}")
        return records, unread

    def _carries(self, live: Live) -> bool:
        key, metadata = self._cluster.deciding.target.key, live.obj.metadata
        return key in metadata.labels or key in metadata.annotations
