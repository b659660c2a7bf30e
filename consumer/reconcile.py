"""Bring registry and object into agreement for one observation: read, plan, perform, remember.

Stands between `handle.py`, which settles messages, and `plan.py`, which decides. Most of it is about not asking twice:
a live create needs no find, what the owner remembers needs no read, a deferred id needs no registry.

An object has one registry. When it comes to ask for another one, its records in the former are closed first and the new
ones written after that, in each try: should both addresses lead to one registry, the last word is that it is deployed.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from consumer.act import Actor, Outcome
from consumer.actions import DeferPatch, PatchObject
from consumer.farewell import Farewell, bid_farewell
from consumer.freshness import Order, compare
from consumer.lookup import Lookup
from consumer.memory import Inputs, Known, Memory, inputs_of
from consumer.observation import Observation, want
from consumer.plan import Facts, PlanSettings, Records, is_stale, plan, questions, write_back
from consumer.retelling import no_older
from consumer.strays import Strays
from shared.errors import ConflictError, PermanentError, TransientError
from shared.objects import ObjectKey, is_registry_id

MARGIN_S: Final = 0.125  # clocks and timers round
DUE_LOOKS_S: Final = (1.0, 5.0)  # after each event of an object that lacks its id: by then it may be free to write

LookAgain = Callable[[ObjectKey, float], None]  # look at the live object after so many seconds


class How(msgspec.Struct, frozen=True):
    """What is known of an observation beside itself.

    `creates_first`: the object was just created before our eyes, so a record cannot exist. `is_look`: it is not an
    event at its turn, but the live object, looked at for an id that is due; or, `forced`, what the last event told,
    said again (`retelling.py`): then the registry is read even if the object is as it was. `moved_on`: the live object
    is not as that event told, so its id is left to the event that is still to come.
    """

    creates_first: bool = False
    forced: bool = False
    is_look: bool = False
    moved_on: bool = False


class Result(msgspec.Struct, frozen=True):
    """What came of an observation, in the words of the metric: applied, noop, duplicate or stale.

    `settles`: this is all there is to say of the object now, so that an older complaint is void unless it is repeated.
    `told`: the rejections have been buried before. `failure`: what is left to do after the records, and why it failed.
    """

    word: str
    rejections: tuple[str, ...] = ()
    settles: bool = False
    told: bool = False
    failure: TransientError | None = None


class Registries(Protocol):
    """The registries that there are; `registries.py` opens them as they are needed."""

    async def choose(self, seen: Observation) -> Lookup:
        """Return the object's registry. Raises PermanentError when it is not allowed, TransientError when unclear."""

    def named(self, name: str) -> Lookup:
        """Return a registry that was chosen before, by its place's name."""

    async def find(self, name: str) -> Lookup | None:
        """Return any registry by its place's name, None when it is not allowed."""


class _Standing(msgspec.Struct, frozen=True):
    """The part of what is remembered that is about registries; see `Known`."""

    registry: str = ""
    record_id: str | None = None
    closed: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


class Reconciler:
    """Reconciles observations, one at a time for each object."""

    def __init__(self, actor: Actor, registries: Registries, settings: PlanSettings, look_again: LookAgain) -> None:
        self._actor = actor
        self._registries = registries
        self._settings = settings
        self._look_again = look_again
        self.memory = Memory()
        self.strays = Strays(actor, registries, settings, self.memory.forget)

    def use(self, settings: PlanSettings) -> None:
        """Decide by these settings from now on."""
        self._settings = settings

    @property
    def prefix(self) -> str:
        """The configured prefix of our labels."""
        return self._settings.prefix

    async def reconcile(self, seen: Observation, how: How) -> Result:
        """Do what the observation asks for. Raises the errors of the adapters; then nothing is remembered.

        What fails when the records are written comes with the result: the object's id, and a registry that it has left.
        """
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
        if changed or known.left or known.unsure or _passed_news(seen, known) or how.forced:
            return await self._apply(seen, how, known)
        self.memory.put(seen.uid, replace(known, freshness=seen.freshness, digest=seen.digest))
        if known.due:
            self._look_while_due(seen, told=True)
        word = "duplicate" if order is Order.SAME else "noop"
        return Result(word, known.rejections, settles=True, told=known.buried)

    def has_handled(self, seen: Observation) -> bool:
        """Whether this state was the last one handled, as far as is remembered."""
        known = self.memory.get(seen.uid)
        return known is not None and (known.freshness, known.digest) == (seen.freshness, seen.digest)

    async def _write_due(self, live: Observation, known: Known | None) -> Result:
        """Write the id that is due, judged from the live object, and nothing else.

        What else is new on it has an event that is still to come: to be handled before it would cost the history the
        versions in between.
        """
        now = inputs_of(live, self._settings)
        if known is None or not known.due or not _same_record(known.inputs, now):
            return Result("noop")
        patch = write_back(live, known.record_id, self._settings)
        outcome = await self._actor.perform(patch, live, None, known.own)
        if outcome.failure is not None:
            return Result("noop", failure=outcome.failure)
        value = known.record_id if outcome.patched else self._settings.target.value_on(live.obj)
        inputs = replace(known.inputs, id_value=value)
        self.memory.put(live.uid, replace(known, inputs=inputs, due=outcome.deferred))
        if outcome.deferred:
            self._look_while_due(live, told=False)
        return Result("applied" if outcome.patched else "noop")

    async def _apply(self, seen: Observation, how: How, known: Known | None) -> Result:
        if known is not None:
            self.memory.put(seen.uid, replace(known, unsure=True))  # until it is done
        wanted = want(seen, self._settings.prefix)
        if wanted.model is None and not seen.models:
            outcome = await self._actor.perform(plan(seen, {}, Facts(), self._settings), seen, None)
            if outcome.failure is not None:
                return Result("noop", failure=outcome.failure)
            self._remember(seen, outcome, _Standing())
            return Result("noop", outcome.rejections, settles=True)
        former = known.left | known.refused | {known.registry} - {""} if known else frozenset[str]()
        try:
            lookup = await self._choose(seen, known)
        except PermanentError as refusal:
            farewell = await self._leave(seen, former)
            told = (str(refusal),) if seen.lives else ()  # what is gone asks for a registry no more
            rejections = (*told, *farewell.refusals)
            standing = _Standing(left=farewell.left, refused=farewell.refused, own=self._own(seen, {}))
            self._remember(seen, Outcome(rejections=rejections), standing)
            result = Result("applied" if farewell.wrote else "noop", rejections, settles=True)
        else:
            name = lookup.place.name
            farewell = await self._leave(seen, former - {name})
            sure = known is not None and known.registry == name and not (known.unsure or how.forced)
            closed = known.closed if known is not None and sure else frozenset[str]()
            result = await self._agree(seen, how, lookup, closed, farewell)
        return replace(result, failure=result.failure or farewell.failure)

    async def _choose(self, seen: Observation, known: Known | None) -> Lookup:
        """Return the object's registry. Without a model label it asks for none: its records are where they were."""
        if want(seen, self._settings.prefix).model is None and known is not None and known.registry:
            return self._registries.named(known.registry)
        return await self._registries.choose(seen)

    async def _leave(self, seen: Observation, names: Iterable[str]) -> Farewell:
        lookups = [self._registries.named(name) for name in sorted(names)]
        return await bid_farewell(seen, lookups, self._actor, self._settings)

    async def _agree(
        self, seen: Observation, how: How, lookup: Lookup, closed: frozenset[str], farewell: Farewell
    ) -> Result:
        """Make the object's own registry true, and the object carry its record's id."""
        records = {} if how.creates_first else await self._read(seen, lookup, closed, thorough=how.forced)
        if self._is_stale(seen, how, records):
            return Result("stale")
        try:
            outcome = await self._perform(seen, how, lookup, records)
        except ConflictError as error:
            # What we wanted to create is there: our own, from a try whose answer was lost, or somebody else's.
            records = await self._read(seen, lookup, frozenset(), thorough=True)
            if self._is_stale(seen, how, records):
                return Result("stale")
            try:
                outcome = await self._perform(seen, how, lookup, records)
            except ConflictError as refusal:
                refused = f"the record of {seen.key} (uid {seen.uid}) cannot be written: {refusal}"
                raise PermanentError(refused) from error
        if outcome.failure is not None:
            return Result("applied" if outcome.wrote else "noop", failure=outcome.failure)
        model = want(seen, self._settings.prefix).model
        current = records.get(model) if model is not None else None
        record_id = outcome.record_id or (current.id if current else None)
        outcome.rejections += farewell.refusals
        closed = frozenset(seen.models) - {model}
        own = self._own(seen, records) | frozenset(filter(None, (record_id,)))
        standing = _Standing(lookup.place.name, record_id, closed, farewell.left, farewell.refused, own)
        self._remember(seen, outcome, standing)
        if outcome.deferred:
            self._look_while_due(seen, told=not how.is_look)
        return Result("applied" if outcome.wrote or outcome.patched else "noop", outcome.rejections, settles=True)

    async def _read(self, seen: Observation, lookup: Lookup, closed: frozenset[str], *, thorough: bool) -> Records:
        """Read the records of this uid, but those of other models that are known to be closed.

        At the end of an object without model label they are read once more: the last word goes into one of them.
        """
        model = want(seen, self._settings.prefix).model
        models = list(seen.models)
        if model is not None and is_registry_id(model) and model not in models:
            models.append(model)
        skipped = closed - {model} if model is not None or seen.lives else frozenset[str | None]()
        return await lookup.records(seen, [each for each in models if each not in skipped], thorough=thorough)

    def _as_sure(self, seen: Observation, how: How, records: Records) -> Observation:
        """Return a state as fresh as we are sure of it: what the live object has just confirmed is no old news."""
        is_confirmed = how.is_look and how.forced and not how.moved_on
        return no_older(seen, records, self._settings.us.cluster_id) if is_confirmed else seen

    def _is_stale(self, seen: Observation, how: How, records: Records) -> bool:
        return is_stale(self._as_sure(seen, how, records), records, self._settings)

    async def _perform(self, seen: Observation, how: How, lookup: Lookup, records: Records) -> Outcome:
        seen = self._as_sure(seen, how, records)
        facts = await lookup.facts(questions(seen, records, self._settings))
        actions = plan(seen, records, facts, self._settings)
        if how.moved_on:
            actions = tuple(each for each in actions if not isinstance(each, PatchObject | DeferPatch))
        return await self._actor.perform(actions, seen, lookup.place, self._own(seen, records))

    def _own(self, seen: Observation, records: Records) -> frozenset[str]:
        """Return the ids of the object's records, former ones included."""
        known = self.memory.get(seen.uid)
        return frozenset(each.id for each in records.values()) | (known.own if known is not None else frozenset())

    def _remember(self, seen: Observation, outcome: Outcome, standing: _Standing) -> None:
        inputs = inputs_of(replace(seen, passed=()), self._settings)
        if outcome.patched:
            inputs = replace(inputs, id_value=standing.record_id)  # so that the echo of our own write is no news
        known = Known(
            seen.freshness,
            seen.digest,
            inputs,
            due=outcome.deferred,
            rejections=outcome.rejections,
            **msgspec.structs.asdict(standing),
        )
        self.memory.put(seen.uid, known)

    def _look_while_due(self, seen: Observation, *, told: bool) -> None:
        """Look again for an id that is due: when it may be written anew, or else soon after what an event told."""
        wait_s = self._actor.wait_s(seen.uid)
        if wait_s > 0:
            self._look_again(seen.key, wait_s + MARGIN_S)
        elif told:
            for delay_s in DUE_LOOKS_S:
                self._look_again(seen.key, delay_s)


def _same_record(known: Inputs, now: Inputs) -> bool:
    """Whether the object still asks for the record whose id is due."""
    return (known.wanted.model, known.asked) == (now.wanted.model, now.asked)


def _passed_news(seen: Observation, known: Known) -> bool:
    """Whether a version was passed over that is not the known one: it belongs into the history."""
    last = known.inputs.wanted
    return any((each.model, each.version) != (last.model or "", last.version) for each in seen.passed)
