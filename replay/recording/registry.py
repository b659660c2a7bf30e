"""What the registries hold, as facts for a capture: asked when the first event needs it, and once more at the end."""

from collections.abc import AsyncIterator, Callable, Collection, Container
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from consumer.environments import Place
from consumer.lookup import Lookup
from consumer.observation import Observation, observe, want
from consumer.plan import PlanSettings
from consumer.records import Record
from replay.capture import Captured, Facts
from replay.recording.core import record_facts, uid_of
from shared.errors import BadEventError, IsvcSyncError, PermanentError
from shared.objects import is_registry_id

_UNREAD: Final = "The registry {}: what it holds is not in the capture: {}."


class Registries(Protocol):
    """Which registry is an object's; `consumer/registries.py`."""

    async def choose(self, seen: Observation) -> Lookup: ...


class RegistryFacts:
    """Asks about one recording. `is_initial` tells the records that were there before it.

    `namespaces` are those of its objects, as far as they are known. `troubles`: sentences about what was not read.
    """

    def __init__(
        self,
        registries: Registries,
        settings: PlanSettings,
        is_initial: Callable[[Record], bool],
        namespaces: Collection[str],
    ) -> None:
        self._registries = registries
        self._settings = settings
        self._is_initial = is_initial
        self._names = {_environment(settings, namespace) for namespace in namespaces}
        self._places: dict[str, Place] = {}
        self._environments: dict[str, dict[str, str]] = {}  # by registry: id to name
        self._asked: set[tuple[str, str, str]] = set()
        self.troubles: dict[str, None] = {}

    async def before(self, line: Captured) -> tuple[Facts, ...]:
        """Return what `plan` needs to know for this event and was not told yet."""
        try:
            seen = observe(line.event, line.obj)
        except BadEventError:
            return ()
        wanted = want(seen, self._settings.prefix)
        if wanted.model is None and not seen.models:
            return ()
        try:
            place = (await self._registries.choose(seen)).place
        except PermanentError:
            return ()  # it may have none: a replay will find that out, too
        except IsvcSyncError as error:
            self._note("of " + str(seen.key), error)
            return ()
        met = () if place.name in self._places else await self._meet(place)
        return (*met, *await self._named(place, wanted.model or "", wanted.version))

    async def at_end(self, uids: Container[str]) -> AsyncIterator[Facts]:
        """Yield all records of these uids as they are now; nothing of a registry that could not be read to its end."""
        for place in self._places.values():
            found, whole = await self._records(place, lambda record: uid_of(record) in uids)
            if not whole:
                continue
            await self._learn(place, {_environment_of(self._settings, record) for record in found})
            environments = self._environments[place.name]
            for facts in record_facts("end", place.name, found, environments):
                yield facts

    async def _meet(self, place: Place) -> tuple[Facts, ...]:
        self._places[place.name] = place
        self._environments[place.name] = {}
        records, _ = await self._records(place, self._is_initial)
        await self._learn(place, self._names | {_environment_of(self._settings, record) for record in records})
        environments = self._environments[place.name]
        told = Facts(registry=place.name, environments={name: number for number, name in environments.items()})
        return (told, *record_facts("start", place.name, records, environments))

    async def _learn(self, place: Place, names: set[str]) -> None:
        """Find out the ids of environments."""
        known = self._environments[place.name]
        for name in sorted(names - set(known.values()) - {""}):
            try:
                found = await place.registry.find_environment(name)
            except IsvcSyncError as error:
                self._note(place.name, error)
                return
            if found is not None:
                known[found] = name

    async def _records(self, place: Place, wanted: Callable[[Record], bool]) -> tuple[list[Record], bool]:
        """Return the records that are wanted, and whether these are all: what came before an error counts."""
        found = []
        try:
            async with aclosing(place.registry.all_records()) as records:
                async for record in records:
                    if wanted(record):
                        found.append(record)  # noqa: PERF401 - what came before an error counts
        except IsvcSyncError as error:
            self._note(place.name, error)
            return found, False
        return found, True

    async def _named(self, place: Place, model: str, version: str) -> tuple[Facts, ...]:
        """Return whether model and version exist, the first time that they are named."""
        facts = Facts(registry=place.name)
        try:
            if self._is_new(place, "model", model):
                exists = await place.registry.model_exists(model)
                facts = msgspec.structs.replace(facts, **{"models" if exists else "absent_models": (model,)})
            if self._is_new(place, "version", version):
                owner = await place.registry.model_of_version(version)
                what = {"absent_versions": (version,)} if owner is None else {"versions": {version: owner}}
                facts = msgspec.structs.replace(facts, **what)
        except IsvcSyncError as error:
            self._note(place.name, error)
        return (facts,) if facts != Facts(registry=place.name) else ()

    def _is_new(self, place: Place, what: str, number: str) -> bool:
        asked = (place.name, what, number)
        if not is_registry_id(number) or asked in self._asked:
            return False
        self._asked.add(asked)
        return True

    def _note(self, registry: str, error: Exception) -> None:
        self.troubles[_UNREAD.format(registry, str(error).rstrip("."))] = None


def _environment(settings: PlanSettings, namespace: str) -> str:
    return settings.environment.replace("{namespace}", namespace).replace("{cluster}", settings.us.cluster)


def _environment_of(settings: PlanSettings, record: Record) -> str:
    stamp = record.stamp
    return _environment(settings, stamp.namespace) if stamp is not None else ""
