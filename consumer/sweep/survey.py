"""Compare all registries with the event stream, once: reads for `compare.py`, which decides. Writes nothing.

The sweep of the consumer (`rounds.py`) and `isvc-sync drift` both see the world through this.

Order matters. First the records of each registry, then the sync markers, then the inventory: so whatever has a record
has its event, and a marker that is there was there before the inventory was read. An event that came after we began is
being handled at this moment: its object is left out. Requests to a registry go one at a time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from consumer.lookup import Lookup
from consumer.observation import Observation, observe, want
from consumer.plan import Facts, PlanSettings, questions
from consumer.sweep.compare import Comparison, Difference
from consumer.sweep.shelf import Shelf
from shared import events
from shared.decoding import UNDECODABLE
from shared.errors import BadEventError, IsvcSyncError, PermanentError, TransientError
from shared.events import SyncMarker
from shared.inventory import StreamState, Told
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.subjects import parse_object_subject

logger = logging.getLogger(__name__)

_DECODER: Final = msgspec.json.Decoder(ReducedObject)
_AT_ONCE: Final = 100  # objects, about 10 ms; then others have their turn
_ROUNDS_MAX: Final = 3


class Inventory(Protocol):
    """The event stream, as far as a survey reads it. Raises TransientError when the broker does not answer."""

    async def state(self) -> StreamState: ...
    async def marker(self, kind: Kind) -> SyncMarker | None: ...
    def last_events(self, kind: Kind) -> AsyncGenerator[Told, None]: ...


class Registries(Protocol):
    """All registries; `registries.py` says what each does."""

    async def choose(self, seen: Observation) -> Lookup: ...
    async def everywhere(self) -> tuple[Lookup, ...]: ...


class RegistryFound(msgspec.Struct, frozen=True):
    """What a registry has: all records, those of this cluster; or why it could not be read."""

    name: str
    records: int = 0
    ours: int = 0
    error: str = ""


class Survey(msgspec.Struct, frozen=True):
    """What was found. `skipped`: objects that could not be judged, most often because their registry is away.

    `deployed`: the deployed records of this cluster, by kind. `unsynced`: kinds without a sync marker in the stream.
    """

    registries: tuple[RegistryFound, ...]
    objects: int
    skipped: int
    differences: tuple[Difference, ...]
    deployed: Mapping[Kind, int]
    unsynced: tuple[Kind, ...]


class Surveyor:
    """Makes surveys. `dead_letters` returns the objects that have one."""

    def __init__(
        self,
        inventory: Inventory,
        registries: Registries,
        dead_letters: Callable[[], Awaitable[frozenset[ObjectKey]]],
        settings: PlanSettings,
    ) -> None:
        self._inventory = inventory
        self._registries = registries
        self._dead_letters = dead_letters
        self._settings = settings

    def use(self, deciding: PlanSettings) -> None:
        """Decide by these settings from now on."""
        self._settings = deciding

    async def survey(self) -> Survey:
        """Return the differences of this moment.

        Raises TransientError when the broker or the Kubernetes API does not answer. A registry that does not is told.
        """
        for _ in range(_ROUNDS_MAX):
            lookups = {lookup.place.name: lookup for lookup in await self._registries.everywhere()}
            found = await self._compare(lookups)
            if len(await self._registries.everywhere()) == len(lookups):
                break  # else an object has named one that was not known
        return found

    async def _compare(self, lookups: Mapping[str, Lookup]) -> Survey:
        before = await self._inventory.state()
        dead = await self._dead_letters()
        shelves: dict[str, Shelf] = {}
        found = [await self._read(name, lookup, shelves) for name, lookup in lookups.items()]
        markers = {kind: marker for kind in Kind if (marker := await self._inventory.marker(kind)) is not None}
        comparison = Comparison(shelves, markers, dead, self._settings)
        judging = _Judging(comparison, self._registries, shelves.keys(), self._settings)
        for kind in Kind:
            async with aclosing(self._inventory.last_events(kind)) as told:
                async for each in told:
                    await judging.take(each, before.last_sequence)
        if (await self._inventory.state()).created != before.created:
            raise TransientError("the event stream was made anew while it was read")
        differences = (*judging.differences, *comparison.strays())
        unsynced = tuple(kind for kind in Kind if kind not in markers)
        return Survey(tuple(found), judging.objects, judging.skipped, differences, comparison.deployed(), unsynced)

    async def _read(self, name: str, lookup: Lookup, shelves: dict[str, Shelf]) -> RegistryFound:
        shelf = Shelf(self._settings.us.cluster_id)
        try:
            async with aclosing(lookup.place.registry.all_records()) as records:
                async for record in records:
                    shelf.add(record)
        except IsvcSyncError as error:
            logger.warning("a registry cannot be compared now", extra={"registry": name, "reason": str(error)})
            return RegistryFound(name, error=str(error))
        shelves[name] = shelf
        return RegistryFound(name, shelf.count, shelf.ours)


class _Judging:
    """One pass over the inventory."""

    def __init__(
        self, comparison: Comparison, registries: Registries, readable: Collection[str], settings: PlanSettings
    ) -> None:
        self._comparison = comparison
        self._registries = registries
        self._readable = readable
        self._settings = settings
        self.differences: list[Difference] = []
        self.objects = 0
        self.skipped = 0

    async def take(self, told: Told, last_sequence: int) -> None:
        """Judge one object by its last event."""
        self.objects += 1
        if self.objects % _AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            _, key = parse_object_subject(told.subject)
        except BadEventError:
            self.skipped += 1  # it names no object
            return
        try:
            seen = _observed(told, key, self._settings.us.cluster_id)
        except (BadEventError, *UNDECODABLE):
            self._skip(key)  # it is among the dead letters already
            return
        if told.sequence > last_sequence:
            self._comparison.skip(key, seen.uid)
            return
        try:
            difference = await self._judged(seen)
        except TransientError:
            self._skip(key, seen.uid)
            return
        except Exception:  # as in `handle.py`: one odd object or record must end neither the sweep nor the process
            logger.exception("fault in this program", extra={"object": str(key)})
            self._skip(key, seen.uid)
            return
        if difference is not None:
            self.differences.append(difference)

    async def _judged(self, seen: Observation) -> Difference | None:
        if want(seen, self._settings.prefix).model is None and not seen.models:
            return self._comparison.judge(seen, None, Facts())
        try:
            lookup = await self._registries.choose(seen)
        except PermanentError:
            return self._comparison.judge(seen, None, Facts())
        home = lookup.place.name
        if home not in self._readable:
            raise TransientError(f"registry {home} was not read")
        asked = questions(seen, self._comparison.records(seen, home), self._settings)
        facts = await lookup.facts(asked) if asked.models or asked.versions else Facts()
        return self._comparison.judge(seen, home, facts)

    def _skip(self, key: ObjectKey, uid: str = "") -> None:
        self.skipped += 1
        self._comparison.skip(key, uid)


def _observed(told: Told, key: ObjectKey, cluster_id: str) -> Observation:
    """Return what an event shows. Raises BadEventError and UNDECODABLE."""
    event = events.decode(told.headers)
    if event.key != key or event.cluster_id != cluster_id:
        raise BadEventError(f"the event of {key} is about {event.key} of cluster id {event.cluster_id}")
    return observe(event, _DECODER.decode(told.body))
