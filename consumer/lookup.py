"""Read from one registry what `plan` must know: the records of a uid, and whether models and versions exist."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from weakref import WeakValueDictionary

from consumer.environments import Place
from consumer.observation import Observation
from consumer.plan import Facts, PlanSettings, Questions, environment_name
from consumer.records import Record, base_name, external_id, later_name
from consumer.requests.inflight import InFlightLimit

CHECKED_FOR_S: Final = 60.0  # how long a model or version that was found counts as there
_NOTHING: Final = Questions()


class Lookup:
    """Asks the registry at `place`. `now` is a monotonic clock in seconds."""

    def __init__(self, place: Place, settings: PlanSettings, now: Callable[[], float]) -> None:
        self.place = place
        self._registry = place.registry
        self._environments = place.environments
        self._settings = settings
        self._now = now
        self._asking: WeakValueDictionary[tuple[str, str], InFlightLimit] = WeakValueDictionary()
        self._checked: dict[tuple[str, str], tuple[float, str | None]] = {}

    async def records(self, seen: Observation, models: Iterable[str], *, thorough: bool = False) -> dict[str, Record]:
        """Return the records of this uid for the given models, by the model that each is for.

        A record of the first model may be an earlier controller's, which has our name form but no externalId.
        `thorough`: look for every model under the name that a create would use, too. It costs a read for each later
        model that has no record, and finds those whose externalId was edited.
        """
        found: dict[str, Record] = {}
        for model in models:
            is_first = model == (seen.models or (model,))[0]
            record = await self._registry.find_record(external_id(seen.uid, model))
            if record is None and is_first:
                record = await self._by_name(seen, base_name(seen.key, seen.uid))
            if record is not None:
                found[record.model_id] = record
            gets_base_name = is_first and record is None  # nothing has it
            if thorough and model not in found and not gets_base_name:
                later = await self._by_name(seen, later_name(seen.key, seen.uid, model))
                if later is not None and _is_of(later, seen.uid, model):
                    found[model] = later
        return found

    async def facts(self, questions: Questions) -> Facts:
        """Answer the questions; what was found to exist is remembered for a minute, what was not is asked again."""
        if questions == _NOTHING:
            return Facts()
        models, versions = await asyncio.gather(
            asyncio.gather(*(self._model(model) for model in questions.models)),
            asyncio.gather(*(self._version(version) for version in questions.versions)),
        )
        return Facts(
            dict(zip(questions.models, models, strict=True)), dict(zip(questions.versions, versions, strict=True))
        )

    async def _by_name(self, seen: Observation, name: str) -> Record | None:
        environment_id = await self._environments.find(environment_name(seen, self._settings))
        if environment_id is None:
            return None
        return await self._registry.find_record_by_name(name, environment_id)

    async def _model(self, model: str) -> bool:
        async def ask() -> str | None:
            return model if await self._registry.model_exists(model) else None

        return await self._checked_once("model", model, ask) is not None

    async def _version(self, version: str) -> str | None:
        async def ask() -> str | None:
            return await self._registry.model_of_version(version)

        return await self._checked_once("version", version, ask)

    async def _checked_once(self, kind: str, number: str, ask: Callable[[], Awaitable[str | None]]) -> str | None:
        """Return what is remembered, else ask; several objects that want to know the same wait for one answer.

        But not for long: NotSentError, where it has not come for over a second.
        """
        async with self._asking.setdefault((kind, number), InFlightLimit(1)):
            known = self._remembered(kind, number)
            if known is not None:
                return known
            answer = await ask()
            if answer is not None:
                self._remember(kind, number, answer)
            return answer

    def _remembered(self, kind: str, number: str) -> str | None:
        at, value = self._checked.get((kind, number), (float("-inf"), None))
        return value if self._now() - at < CHECKED_FOR_S else None

    def _remember(self, kind: str, number: str, value: str) -> None:
        now = self._now()
        if len(self._checked) > 10_000:
            self._checked = {key: entry for key, entry in self._checked.items() if now - entry[0] < CHECKED_FOR_S}
        self._checked[kind, number] = (now, value)


def _is_of(record: Record, uid: str, model: str) -> bool:
    """Whether a record of the right name is for this model, and its property, if it has one, tells of this uid."""
    return record.model_id == model and (record.stamp is None or record.stamp.uid == uid)
