"""Find what a predecessor has left, and let it be taken over: reads and asks; `adoptable.py` sorts.

Registries first and the cluster second, so that whatever has a record had its object. What `plan` would do about a
record is found out by asking it, as `isvc-sync drift` does; what is done is done by the object's owner, who is asked
for a look. Only finalizers are taken off from here: isvc-sync's daemons know nothing of finalizers.
"""

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from cli.migration.adoptable import (
    Fate,
    Finding,
    Shelved,
    Sorted,
    finalizers_on,
    orphan_limit,
    other_prefixed,
    sort_records,
    triaged,
    wrong_ids,
)
from cli.migration.controllers import Controller, config_maps_of, running
from cli.migration.judging import Judge, ReadRegistry
from cli.naming import other_names
from cli.objects import Live, Objects, name_registries
from cli.reading import Reading
from consumer.lookup import Lookup
from consumer.predecessors import named_object, strip_operations
from consumer.records import Record
from consumer.sweep.shelf import Shelf, is_ours
from consumer.sweep.survey import RegistryFound
from shared.errors import (
    ConflictError,
    IsvcSyncError,
    NotFoundError,
    NotSentError,
    PermanentError,
    SettingsError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
)
from shared.objects import Kind

STRIP_TRIES: Final = 5  # KServe writes the same list while an object is new, or goes


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at, and what was asked for. `orphans_max` None: as many as the sweep would believe."""

    namespaces: frozenset[str] = frozenset()
    controller_namespace: str = ""
    strip: bool = False
    undeploy: bool = False
    orphans_max: int | None = None

    def holds(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces

    def require(self, present: frozenset[str]) -> None:
        """Raise SettingsError for a namespace that does not exist: nothing would be found in it, and all seem done."""
        unknown = sorted({*self.namespaces, self.controller_namespace} - {""} - present)
        if unknown:
            raise SettingsError(
                f"there is no namespace {unknown[0]!r} in this cluster: check --namespace and --controller-namespace."
            )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found.

    `unchecked`: why Deployments could not be looked at, "" where they were. `elsewhere`: deployed records in
    environments that are no namespace here. `others`: ids of other clusters that write to the same registries.
    `other_names`: what deployed records of this cluster's id call it besides.
    """

    cluster: str
    cluster_id: str
    controllers: tuple[Controller, ...]
    unchecked: str
    findings: tuple[Finding, ...]
    registries: tuple[RegistryFound, ...]
    objects: int
    elsewhere: int
    others: tuple[str, ...]
    prefixes: dict[str, int]
    orphans_max: int
    other_names: tuple[str, ...] = ()

    def of(self, *fates: Fate) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.fate in fates)

    @property
    def unread(self) -> tuple[str, ...]:
        return tuple(f"{each.name}: {each.error}" for each in self.registries if each.error)

    @property
    def is_compared(self) -> bool:
        """Whether any registry was read."""
        return not all(each.error for each in self.registries)


class Adopter:
    """One connection's worth of work. Raises the errors of the adapters."""

    def __init__(self, read: Reading, objects: Objects, scope: Scope) -> None:
        self._read = read
        self._objects = objects
        self._scope = scope
        self._deciding = read.deciding
        self._reasons: dict[str, str] = {}  # why a registry was not read, by its name

    async def find(self) -> Found:
        """Look at everything. A registry that does not answer is told, and nothing is concluded from its silence."""
        namespaces = await self._objects.namespaces()
        self._scope.require(namespaces)
        controllers, unchecked = await self._controllers()
        registries: dict[str, ReadRegistry] = {}
        told = {each.name: each for each in await self._read_registries(namespaces, registries)}
        live = await self._live()
        await name_registries(self._read.cluster.registries, live)
        told |= {each.name: each for each in await self._read_registries(namespaces, registries)}
        shelved = [each for registry in registries.values() for each in registry.records]
        found = sort_records(shelved, {each.uid: each for each in live})
        here = [each for each in live if self._scope.holds(each.key.namespace)]
        limit = self._limit(shelved, found)
        us = self._deciding.us
        judge = Judge(self._read.cluster.registries, registries, self._read.events, self._deciding)
        living = self._in_scope([await judge.record(each, known) for each, known in found.living])
        adopted = {each.uid for each in living if each.fate is Fate.ADOPT}
        unread = any(each.error for each in told.values())  # then an id that is no record may be one all the same
        relabelled = [] if unread else await self._relabelled([e for e in here if e.uid not in adopted], shelved, judge)
        findings = (
            *living,
            *self._in_scope(found.kept),
            *triaged(self._in_scope(found.orphans), limit, wanted=self._scope.undeploy),
            *relabelled,
            *finalizers_on(here, wanted=self._scope.strip),
        )
        return Found(
            cluster=us.cluster,
            cluster_id=us.cluster_id,
            controllers=controllers,
            unchecked=unchecked,
            findings=tuple(sorted(findings, key=lambda each: (each.key, each.fate, each.uid))),
            registries=tuple(told.values()),
            objects=len(live),
            elsewhere=found.elsewhere,
            others=_others((each.record for each in shelved), us.cluster_id),
            prefixes=other_prefixed(here, self._deciding.prefix),
            orphans_max=limit,
            other_names=other_names((each.record for each in shelved), us),
        )

    async def ask(self, findings: Iterable[Finding]) -> int:
        """Ask the owners to look at what the findings are about; return at how many objects."""
        named: dict[object, list[Finding]] = {}
        for each in findings:
            named.setdefault(each.key, []).append(each)
        for those in named.values():
            refs = [each.ref for each in those if each.ref is not None and each.fate is Fate.UNDEPLOY]
            await self._read.stream.look(those[0].key, refs)
        return len(named)

    async def strip(self, finding: Finding) -> str:
        """Take the predecessors' finalizers off an object; return what went wrong, "" when none is left on that uid.

        Another writer of the list makes the patch fail: then the object is read again, and a re-created one left alone.
        """
        key, kubernetes = finding.key, self._read.cluster.kubernetes
        for _ in range(STRIP_TRIES):
            raw = await kubernetes.get(key)
            live = None if raw is None else self._objects.live(raw, key.kind)
            operations = strip_operations(live.uid, live.finalizers) if live and live.uid == finding.uid else []
            if not operations:
                return ""
            try:
                await kubernetes.patch(key, operations)
            except ConflictError:
                continue
            except PermanentError as error:  # an admission webhook's word on this object, and no other
                return str(error)
            return ""
        return "others write its finalizers all the time, run this again"

    async def _controllers(self) -> tuple[tuple[Controller, ...], str]:
        try:
            deployments = await self._objects.deployments(self._scope.controller_namespace)
        except (UnreachableError, UnauthorizedError):
            raise
        except TransientError as error:  # no right to list them
            return (), str(error)
        config_maps: dict[tuple[str, str], Mapping[str, str]] = {}
        for namespace, name in sorted(config_maps_of(deployments)):
            try:
                config_maps[namespace, name] = await self._objects.config_map(namespace, name)
            except (UnreachableError, UnauthorizedError):
                raise
            except TransientError:
                continue  # no right: what it says counts as on, and is told so
        return running(deployments, config_maps), ""

    async def _live(self) -> list[Live]:
        try:
            return await self._objects.of(Kind.ISVC)
        except NotFoundError as error:
            raise TransientError(
                f"{error}: is KServe installed? Without its objects nothing can be compared"
            ) from error

    async def _read_registries(self, namespaces: frozenset[str], read: dict[str, ReadRegistry]) -> list[RegistryFound]:
        """Read the registries that are known and not read yet; return what each has, or why it was not read."""
        told: list[RegistryFound] = []
        for lookup in await self._read.cluster.registries.everywhere():
            name = lookup.place.name
            if name in read:
                continue
            shelf = Shelf(self._deciding.us.cluster_id)
            try:
                async with aclosing(lookup.place.registry.all_records()) as every:
                    records = [record async for record in every]
                spaces = await _environments(lookup, records, namespaces)
            except IsvcSyncError as error:
                told.append(RegistryFound(name, error=await self._reason(name, error)))
                continue
            for record in records:
                shelf.add(record)
            told.append(RegistryFound(name, shelf.count, shelf.ours))
            shelved = tuple(Shelved(name, each, spaces.get(each.environment_id, "")) for each in records)
            read[name] = ReadRegistry(lookup, shelf, shelved)
        return told

    async def _reason(self, name: str, error: IsvcSyncError) -> str:
        """Return why a registry is not read: what went wrong with it, and not that nothing is sent to it since."""
        if not isinstance(error, NotSentError) or name not in self._reasons:
            self._reasons[name] = await self._read.cluster.trouble(name, str(error))
        return self._reasons[name]

    async def _relabelled(self, here: list[Live], shelved: list[Shelved], judge: Judge) -> list[Finding]:
        """Return the wrong ids on objects, with what a look would do about each."""
        by_uid = {each.uid: each for each in here}
        return [
            await judge.wrong_id(each, by_uid[each.uid]) if each.fate is Fate.RELABEL else each
            for each in wrong_ids(here, shelved, self._deciding.target.key)
        ]

    def _in_scope(self, findings: Iterable[Finding]) -> list[Finding]:
        return [each for each in findings if self._scope.holds(each.key.namespace)]

    def _limit(self, shelved: Iterable[Shelved], found: Sorted) -> int:
        if self._scope.orphans_max is not None:
            return self._scope.orphans_max
        ours = sum(
            each.record.deployed is True and is_ours(each.record, self._deciding.us.cluster_id) for each in shelved
        )
        theirs = sum(each.record.deployed is True for each, _ in found.living) + len(found.orphans)
        return orphan_limit(ours + theirs)


async def _environments(lookup: Lookup, records: Iterable[Record], namespaces: Iterable[str]) -> dict[str, str]:
    """Return which namespace each serving environment of a predecessor's records is, by the environment's id."""
    wanted = {each.environment_id for each in records if named_object(each) is not None}
    found: dict[str, str] = {}
    for namespace in sorted(namespaces):
        if wanted <= found.keys():
            break
        number = await lookup.place.environments.find(namespace)
        if number is not None:
            found[number] = namespace
    return found


def _others(records: Iterable[Record], own: str) -> tuple[str, ...]:
    stamps = (record.stamp for record in records)
    return tuple(sorted({stamp.cluster_id for stamp in stamps if stamp is not None and stamp.cluster_id != own}))
