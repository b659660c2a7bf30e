"""Bring registry and object into agreement for one observation: read, plan, perform, remember.

Stands between `handle.py`, which settles messages, and `plan.py`, which decides. Everything here is about not asking
twice: a live create needs no find, what the owner remembers needs no read, a deferred id needs no registry.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from consumer.act import Actor, Outcome
from consumer.freshness import Order, compare
from consumer.lookup import Lookup
from consumer.memory import Known, Memory, inputs_of
from consumer.observation import Observation, want
from consumer.plan import PlanSettings, Records, is_stale, plan, questions, write_back
from shared.errors import ConflictError, PermanentError
from shared.objects import ObjectKey, is_registry_id

DUE_LOOKS_S: Final = (1.0, 5.0)  # after each event of an object that lacks its id: by then it may be free to write

LookAgain = Callable[[ObjectKey, float], None]  # look at the live object after so many seconds


class How(msgspec.Struct, frozen=True):
    """What is known of an observation beside itself.

    `creates_first`: the object was just created before our eyes, so a record cannot exist. `forced`: read the registry
    even if the object is as it was. `is_look`: it was read from the API server, not told by an event.
    """

    creates_first: bool = False
    forced: bool = False
    is_look: bool = False


class Result(msgspec.Struct, frozen=True):
    """What came of an observation, in the words of the metric: applied, noop, duplicate or stale.

    `settles`: the object was planned anew, so that an older complaint about it is void unless it is repeated.
    """

    word: str
    rejections: tuple[str, ...] = ()
    settles: bool = False


class Reconciler:
    """Reconciles observations, one at a time for each object."""

    def __init__(self, actor: Actor, lookup: Lookup, settings: PlanSettings, look_again: LookAgain) -> None:
        self._actor = actor
        self._lookup = lookup
        self._settings = settings
        self._look_again = look_again
        self.memory = Memory()

    async def reconcile(self, seen: Observation, how: How) -> Result:
        """Do what the observation asks for. Raises the errors of the adapters; then nothing is remembered."""
        known = self.memory.get(seen.uid)
        if how.is_look and not how.forced:
            return await self._write_due(seen, known)
        if known is None:
            return await self._apply(seen, how, None)
        order = compare(seen.freshness, known.freshness)
        if order is Order.OLDER:
            return Result("stale")
        again = order is Order.SAME and known.digest == seen.digest  # as before our own write to it
        changed = known.inputs != inputs_of(seen, self._settings) and not again
        if changed or _passed_news(seen, known) or how.forced:
            return await self._apply(seen, how, known)
        self.memory.put(seen.uid, replace(known, freshness=seen.freshness, digest=seen.digest))
        if known.due:
            self._look_while_due(seen)
        return Result("duplicate" if order is Order.SAME else "noop")

    async def _write_due(self, live: Observation, known: Known | None) -> Result:
        """Write the id that is due, judged from the live object, and nothing else.

        What else is new on it has an event that is still to come: to be handled before it would cost the history the
        versions in between.
        """
        wanted = want(live, self._settings.prefix)
        if known is None or not known.due or known.inputs.wanted.model != wanted.model:
            return Result("noop")
        outcome = await self._actor.perform(write_back(live, known.record_id, self._settings), live)
        value = known.record_id if outcome.patched else self._settings.target.value_on(live.obj)
        inputs = replace(known.inputs, id_value=value)
        self.memory.put(live.uid, replace(known, inputs=inputs, due=outcome.deferred))
        return Result("applied" if outcome.patched else "noop")

    async def _apply(self, seen: Observation, how: How, known: Known | None) -> Result:
        closed = known.closed if known else frozenset()
        records = {} if how.creates_first else await self._read(seen, closed)
        if is_stale(seen, records):
            return Result("stale")
        try:
            outcome = await self._perform(seen, records)
        except ConflictError as error:
            # What we wanted to create is there: our own, from a try whose answer was lost, or somebody else's.
            records = await self._read(seen, frozenset())
            if is_stale(seen, records):
                return Result("stale")
            outcome = await self._perform_again(seen, records, error)
        model = want(seen, self._settings.prefix).model
        current = records.get(model) if model is not None else None
        record_id = outcome.record_id or (current.id if current else None)
        self._remember(seen, frozenset(seen.models) - {model}, record_id, outcome)
        if outcome.deferred and not how.is_look:
            self._look_while_due(seen)
        return Result("applied" if outcome.wrote or outcome.patched else "noop", outcome.rejections, settles=True)

    async def _read(self, seen: Observation, closed: frozenset[str]) -> Records:
        """Read the records of this uid, but those of other models that are known to be closed.

        At the end of an object without model label they are read once more: the last word goes into one of them.
        """
        model = want(seen, self._settings.prefix).model
        models = list(seen.models)
        if model is not None and is_registry_id(model) and model not in models:
            models.append(model)
        skipped = closed - {model} if model is not None or seen.lives else frozenset[str | None]()
        return await self._lookup.records(seen, [each for each in models if each not in skipped])

    async def _perform(self, seen: Observation, records: Records) -> Outcome:
        facts = await self._lookup.facts(questions(seen, records, self._settings))
        return await self._actor.perform(plan(seen, records, facts, self._settings), seen)

    async def _perform_again(self, seen: Observation, records: Records, conflict: ConflictError) -> Outcome:
        """Perform with what is really there. Raises PermanentError when that collides with what cannot be found."""
        model = want(seen, self._settings.prefix).model
        try:
            return await self._perform(seen, records)
        except ConflictError:
            if model in records:
                raise
            taken = f"name or externalId of the record of {seen.key} (uid {seen.uid}) is taken by something else"
            raise PermanentError(taken) from conflict

    def _remember(self, seen: Observation, closed: frozenset[str], record_id: str | None, outcome: Outcome) -> None:
        inputs = inputs_of(replace(seen, passed=()), self._settings)
        if outcome.patched:
            inputs = replace(inputs, id_value=record_id)  # so that the echo of our own write is no news
        self.memory.put(seen.uid, Known(seen.freshness, seen.digest, inputs, record_id, closed, outcome.deferred))

    def _look_while_due(self, seen: Observation) -> None:
        for delay_s in DUE_LOOKS_S:
            self._look_again(seen.key, delay_s)


def _passed_news(seen: Observation, known: Known) -> bool:
    """Whether a version was passed over that is not the known one: it belongs into the history."""
    last = known.inputs.wanted
    return any((each.model, each.version) != (last.model or "", last.version) for each in seen.passed)
