"""Notes of what the consumer's core decides while it handles one event; `planning.py` makes steps of them. Pure."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import msgspec

from consumer.act import Actor, Outcome
from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord, Warn
from consumer.delivery.work import Work
from consumer.environments import Place
from consumer.notices import About, Ledger, Notice, Told
from consumer.observation import Observation
from consumer.records import Record
from replay.steps import Taken

_CREATE = CreateRecord.__name__


class Notes:
    """What came of one event, in the words of `Step`. `now`: the time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ledger = Ledger()
        self.clear()

    def clear(self) -> None:
        self.taken: list[Taken] = []
        self.written: dict[int, Record] = {}  # by the identity of the action
        self.notices: list[str] = []
        self.write_back = ""  # what became of the last patch
        self.registry = ""
        self.result = ""

    def wrote(self, action: CreateRecord | UpdateRecord, record: Record) -> None:
        self.written[id(action)] = record

    def wrote_back(self, result: str) -> None:
        self.write_back = result

    def told(self, about: About, notice: Notice) -> None:
        """Note what an owner is told, but what is told once only and was told before."""
        if self._ledger.add(about, notice, self._now()) is not Told.REPEATED:
            self.notices.append(f"{notice.topic}: {notice.said}")

    def came(self, _work: Work, result: str) -> None:
        self.result = result

    @property
    def is_news(self) -> bool:
        """Whether more was decided than to wait on."""
        return any(each.kind != DeferPatch.__name__ for each in self.taken)

    def take(self, actions: Sequence[Action], place: Place | None, *, done: bool) -> None:
        """Note actions; those that an error stopped are left out."""
        self.registry = place.name if place is not None else self.registry
        for action in actions:
            if done or id(action) in self.written:
                self.taken.append(self._taken(action, place.name if place is not None else ""))

    def _taken(self, action: Action, registry: str) -> Taken:
        fields: dict[str, Any] = {name: value for name, value in msgspec.structs.asdict(action).items() if value}
        reason = fields.pop("reason")
        record = ""
        match action:
            case CreateRecord():
                record = self.written[id(action)].id
                fields["deployed"] = action.deployed
            case UpdateRecord():
                record = fields.pop("id")
                fields["deployed"] = action.deployed
            case PatchObject():
                record = fields.pop("record_id", "") or self._created()
                fields["result"] = self.write_back or "carried"  # somebody has written it meanwhile
            case DeferPatch():
                record = fields.pop("record_id", "") or self._created()
            case Warn() | Reject():
                pass
        return Taken(type(action).__name__, reason, record, registry, fields)

    def _created(self) -> str:
        """Return the id of the record that was just created: what names none is about that."""
        return next((each.record for each in reversed(self.taken) if each.kind == _CREATE), "")


class NotingActor(Actor):
    """The consumer's actor; `notes` hears of everything that it is given to do."""

    notes: Notes

    async def perform(
        self, actions: Sequence[Action], seen: Observation, place: Place | None, own: Container[str] = ()
    ) -> Outcome:
        done = False
        try:
            outcome = await super().perform(actions, seen, place, own)
            done = outcome.failure is None
        finally:
            self.notes.take(actions, place, done=done)
        return outcome
