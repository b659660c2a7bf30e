"""What a capture tells of one object. Decides every event again, so that record ids are those of `replay --plan`."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from consumer.observation import Observation, observe, want
from consumer.plan import Facts as PlanFacts
from consumer.plan import PlanSettings, Questions, questions
from consumer.records import Record
from consumer.sweep.shelf import Shelf
from replay.capture import Action, Captured, Facts, Line, RecordFact
from replay.life.conclusion import uid_of
from replay.life.facts import Evidence, Letter, Past, Standing
from replay.planning import Planner
from replay.registry import MemoryRegistry
from replay.steps import Step
from shared.objects import ObjectKey

_ACK, _RETRY = "ack", "retry"
_SETTLING = frozenset({_ACK, "dead"})


async def found_in(
    lines: Iterable[Line], keys: Sequence[ObjectKey], planner: Planner, settings: PlanSettings
) -> list[Evidence]:
    """Return what a capture's lines tell of each of these objects. Raises CaptureError for one that does not decode."""
    tracks = [(Decided(key), _Told(key)) for key in keys]
    for line in lines:
        match line:
            case Captured():
                steps = planner.decide(line)
                for decided, _ in tracks:
                    decided.take(line, steps)
            case Facts():
                planner.facts(line)
                for _, told in tracks:
                    told.facts(line)
            case Action():
                for _, told in tracks:
                    told.action(line)
            case _:
                pass
    at_end = planner.end()
    return [await _evidence(decided, told, at_end, planner, settings) for decided, told in tracks]


async def _evidence(
    decided: "Decided", told: "_Told", at_end: Iterable[Step], planner: Planner, settings: PlanSettings
) -> Evidence:
    decided.looked(at_end)
    past, key = decided.past, decided.key
    uids = {each.event.event.uid for each in past}
    planned = {
        name: tuple(registry.records()) for name, registry in planner.registries.items() if name not in told.ended
    }
    held = {**planned, **told.ended}
    records = {name: tuple(each for each in those if is_about(each, key, uids)) for name, those in held.items()}
    return Evidence(
        key=key,
        settings=settings,
        past=with_real_ids(past, planner, held) if told.ended else tuple(past),
        actions=tuple(told.actions),
        standings={uid: await _standing(uid, past, planner, records, told) for uid in uids},
        records=records,
        planned=frozenset(planned),
        letter=_letter(past),
        at_hand=told.at_hand(),
    )


class Decided:
    """The events of one object with what is decided about them."""

    def __init__(self, key: ObjectKey) -> None:
        self.key = key
        self.past: list[Past] = []

    def take(self, line: Captured, steps: Sequence[Step]) -> None:
        """Take in what was decided up to and with an event, of this object or another one."""
        self.looked(steps[:-1])
        if line.event.key == self.key:
            self.past.append(Past(line, steps[-1]))

    def looked(self, steps: Iterable[Step]) -> None:
        """Take in what looks found after the last event."""
        looks = tuple(step for step in steps if step.key == self.key)
        if looks:
            self.past[-1] = replace(self.past[-1], looks=self.past[-1].looks + looks)


def with_real_ids(
    past: Iterable[Past], planner: Planner, records: Mapping[str, tuple[Record, ...]]
) -> tuple[Past, ...]:
    """Return decisions with the ids that the planned records have in their registries, "" for one that is not there."""
    real = {(name, record.external_id): record.id for name, those in records.items() for record in those}
    ids = {
        (name, record.id): real.get((name, record.external_id), "")
        for name, registry in planner.registries.items()
        for record in registry.records()
    }

    def renamed(step: Step) -> Step:
        return replace(
            step,
            taken=tuple(
                replace(each, record=ids.get((each.registry or step.registry, each.record), "")) for each in step.taken
            ),
        )

    return tuple(
        replace(each, step=renamed(each.step) if each.step else None, looks=tuple(map(renamed, each.looks)))
        for each in past
    )


class _Told:
    """What the lines beside the events tell: actions, and the records at the end."""

    def __init__(self, key: ObjectKey) -> None:
        self._key = key
        self.actions: list[Action] = []
        self._acknowledging: set[str] = set()
        self.ended: dict[str, tuple[Record, ...]] = {}

    def action(self, action: Action) -> None:
        if action.kind == _ACK:
            self._acknowledging.add(action.member)
        if action.object == str(self._key):
            self.actions.append(action)

    def at_hand(self) -> frozenset[int]:
        """Return the events that a consumer had begun and not ended, by all that it tells.

        It need not tell of acknowledgements: one that tells of none has ended what it does not try again.
        """
        last = {action.event: action for action in self.actions}
        return frozenset(
            event
            for event, action in last.items()
            if action.kind == _RETRY or (action.kind not in _SETTLING and action.member in self._acknowledging)
        )

    def facts(self, facts: Facts) -> None:
        if facts.at == "end":
            records = tuple(_record(fact) for fact in facts.records)
            self.ended[facts.registry] = self.ended.get(facts.registry, ()) + records


def _record(fact: RecordFact) -> Record:
    return Record(
        id=fact.id,
        name=fact.name,
        external_id=fact.external_id,
        environment_id=fact.environment,
        model_id=fact.model_id,
        version_id=fact.version_id,
        runtime=fact.runtime,
        deployed=fact.deployed,
        properties=fact.properties,
    )


def _letter(past: list[Past]) -> Letter | None:
    """Return the dead letter that is left when all is decided: that of the last event, if that is one."""
    last = past[-1] if past else None
    if last is None or last.step is None or last.step.result != "dead":
        return None
    return Letter(last.step.reason, last.event.event.uid, last.event.position.seq)


def is_about(record: Record, key: ObjectKey, uids: set[str]) -> bool:
    """Whether a record is one of the object's: of a uid that its name is known to have had, or by its property."""
    stamp = record.stamp
    named = stamp is not None and (stamp.kind, stamp.namespace, stamp.name) == (key.kind, key.namespace, key.name)
    return named or uid_of(record) in uids


async def _standing(
    uid: str, past: list[Past], planner: Planner, held: Mapping[str, tuple[Record, ...]], told: "_Told"
) -> Standing:
    """Return where a uid stands after its last event; `held`: the object's records that count, by registry."""
    settings = planner.settings
    events = [each for each in past if each.event.event.uid == uid and each.step is not None]
    last = events[-1]
    homes = [each.step.registry for each in events if each.step is not None and each.step.registry]
    seen = _seen(last, planner, is_real=homes[-1] in told.ended if homes else bool(told.ended))
    step = last.step
    labelled = want(seen, settings.prefix).model is not None
    if step is not None and not step.registry and labelled and step.result in {"dead", "retry"}:
        return Standing(seen=seen, no_home=step.reason, forbidden=step.result == "dead")
    if not homes:
        return Standing(seen=seen)
    home = homes[-1]
    facts = await _facts(asked_about(seen, held.get(home, ()), settings), planner.registry(home))
    return Standing(seen=seen, home=home, facts=facts)


def _seen(last: Past, planner: Planner, *, is_real: bool) -> Observation:
    """Return the newest state; where its record's id is not the real one, with that of the registry in memory."""
    shown = planner.shown(last.event.event.key)
    if shown is not None and shown.uid == last.event.event.uid and not is_real:
        return shown
    return observe(last.event.event, last.event.obj)


async def _facts(asked: Questions, registry: MemoryRegistry) -> PlanFacts:
    models = {each: await registry.model_exists(each) for each in asked.models}
    versions = {each: await registry.model_of_version(each) for each in asked.versions}
    return PlanFacts(models, versions)


def asked_about(seen: Observation, records: Iterable[Record], settings: PlanSettings) -> Questions:
    """Return what `plan` would ask about a state, given the records that there are."""
    shelf = Shelf(settings.us.cluster_id)
    for record in records:
        if uid_of(record) == seen.uid:
            shelf.add(record)
    model = want(seen, settings.prefix).model
    return questions(seen, shelf.of(seen, [*seen.models, *([model] if model else [])]), settings)
