"""What a look would do about a predecessor's record, or a wrong id, of a living object: `plan` is asked."""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from cli.migration.adoptable import Fate, Finding, Shelved, judged
from cli.objects import Live
from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord
from consumer.lookup import Lookup
from consumer.observation import Observation, want
from consumer.plan import PlanSettings, environment_name, plan, questions
from consumer.ports import LastEvents
from consumer.records import Record
from consumer.sweep.shelf import Shelf
from shared.errors import IsvcSyncError, PermanentError, TransientError


class Registries(Protocol):
    """The part of `consumer/registries.py` that is needed here."""

    async def choose(self, seen: Observation) -> Lookup: ...


class ReadRegistry(msgspec.Struct, frozen=True):
    """One registry that was read."""

    lookup: Lookup
    shelf: Shelf
    records: tuple[Shelved, ...]


class Judge:
    """Judges with what was read of each registry, by name."""

    def __init__(
        self,
        registries: Registries,
        read: Mapping[str, ReadRegistry],
        events: LastEvents,
        deciding: PlanSettings,
    ) -> None:
        self._registries = registries
        self._read = read
        self._events = events
        self._deciding = deciding

    async def record(self, shelved: Shelved, live: Live) -> Finding:
        """Return what becomes of a living object's record."""
        seen = await self._seen(live)
        if seen is None:
            why = "no event of this object is in the stream yet: does a producer run?"
            return judged(shelved, live, Fate.WAITS, why)
        try:
            why = await self._obstacle(seen, shelved)
            actions = () if why else await self._planned(seen, shelved.registry, shelved.record)
        except PermanentError as error:
            return judged(shelved, live, Fate.KEEP, str(error))
        except TransientError as error:
            return judged(shelved, live, Fate.WAITS, str(error))
        adopts = any(isinstance(each, UpdateRecord) and each.id == shelved.record.id for each in actions)
        what = why or "; ".join(map(_sentence, actions)) or "isvc-sync has another record for this object"
        return judged(shelved, live, Fate.ADOPT if adopts else Fate.KEEP, what)

    async def wrong_id(self, finding: Finding, live: Live) -> Finding:
        """Return whether a look would set an id right: not while that costs more than WRITE_BACK allows."""
        seen = await self._seen(live)
        actions: Iterable[Action] = ()
        try:
            if seen is not None:
                actions = await self._planned(seen, (await self._registries.choose(seen)).place.name, None)
        except IsvcSyncError as error:
            return msgspec.structs.replace(finding, fate=Fate.KEEP, what=f"{finding.what}; {error}")
        fate = Fate.RELABEL if any(isinstance(each, PatchObject) for each in actions) else Fate.KEEP
        return msgspec.structs.replace(finding, fate=fate, what="; ".join((finding.what, *map(_sentence, actions))))

    async def _seen(self, live: Live) -> Observation | None:
        """Return the live object with what its last event knew; None where no event tells of this uid."""
        last = await self._events.last(live.key)
        return live.seen_after(last.seen) if last is not None and last.seen.uid == live.uid else None

    async def _obstacle(self, seen: Observation, shelved: Shelved) -> str:
        """Return why a look would not find a record, "" where it would. Raises where the registry is not clear."""
        if want(seen, self._deciding.prefix).model is None and not seen.models:
            return "the object has no registered-model label: it is not indexed"
        environment = environment_name(seen, self._deciding)
        if environment != shelved.namespace:
            return f"ENVIRONMENT_NAME leads to {environment!r}, the record is in environment {shelved.namespace!r}"
        home = (await self._registries.choose(seen)).place.name
        return "" if home == shelved.registry else f"it is in {shelved.registry}, the object's registry is {home}"

    async def _planned(self, seen: Observation, registry: str, record: Record | None) -> tuple[Action, ...]:
        """Return what `plan` would do; of records without a property of ours it is shown `record` only."""
        if registry not in self._read:
            raise TransientError(f"registry {registry} was not read")
        model = want(seen, self._deciding.prefix).model
        models = dict.fromkeys((*seen.models, *([model] if model else [])))
        known = self._read[registry].shelf.of(seen, models)
        here = {name: each for name, each in known.items() if each.stamp is not None or each == record}
        facts = await self._read[registry].lookup.facts(questions(seen, here, self._deciding))
        return plan(seen, here, facts, self._deciding)


def _sentence(action: Action) -> str:
    match action:
        case UpdateRecord():
            verb = "change the record" if action.deployed else "undeploy the record"
        case CreateRecord():
            verb = "create a record"
        case PatchObject():
            verb = "write the id"
        case DeferPatch():
            verb = "write the id later"
        case Reject():
            verb = "dead letter"
        case _:
            verb = "tell its owner"
    return f"{verb}: {action.reason}"
