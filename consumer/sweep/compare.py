"""What differs between the records of all registries and the last events of all objects. Pure; `survey.py` reads.

An object's difference is what `plan` would do about it; so the sweep, `isvc-sync drift` and an event agree. What `plan`
cannot see from an object alone is added here: records in registries that are not (any more) the object's, and records
of objects that have no event at all.

A difference is a question, never an order: it becomes a `look`, and the shard's owner GETs the live object, reads the
records and plans. So a difference that is none (an event still on its way, a record that another consumer wrote while
we looked) costs a few reads and no write.

Nothing is undeployed where the stream has no sync marker: until then a missing entry means nothing. Too many
undeployments at once are held for a person. A record that names another cluster id, or none, is never touched.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, UpdateRecord
from consumer.looks import RecordRef
from consumer.observation import Observation, want
from consumer.plan import ELSEWHERE, FORGOTTEN, Facts, PlanSettings, Records, leave, plan
from consumer.records import Record
from consumer.retelling import is_ahead, lifted, no_older
from consumer.sweep.shelf import Shelf, is_ours
from shared.events import SyncMarker
from shared.objects import Kind, ObjectKey

HOLD_MIN: Final = 5
HOLD_SHARE: Final = 5  # one in five

Uids = frozenset[tuple[ObjectKey, str]]


class Reason(StrEnum):
    """Why an object is looked at; the value is what people read."""

    GONE = "gone, but deployed"
    UNKNOWN = "unknown, but deployed"
    MISSING = "no record"
    STATE = "wrong state"
    CONTENT = "wrong content"
    LEFT = "left behind"
    DEAD_LETTER = "can succeed now"
    ID = "id not on object"
    DEFERRED = "write-back waits"
    AHEAD = "ahead of the stream"


class Difference(msgspec.Struct, frozen=True):
    """One object that differs from its records.

    `repairs`: what would be done, a sentence each. `refs`: the records that the look must name. `undeploys`: a record
    would become UNDEPLOYED. `confirmed`: a sync marker vouches that the stream knows the object's namespace.
    """

    key: ObjectKey
    uid: str
    reason: Reason
    repairs: tuple[str, ...]
    refs: tuple[RecordRef, ...] = ()
    undeploys: bool = False
    confirmed: bool = True

    @property
    def is_drift(self) -> bool:
        """Whether something is wrong. A write-back that waits, because now it would cost pods, is not."""
        return self.reason is not Reason.DEFERRED


class Comparison:
    """Compares the shelves, by their registries' names, with objects as they come; what is left over comes last.

    `markers`: the sync markers that the stream holds. `dead`: objects that have a dead letter.
    """

    def __init__(
        self,
        shelves: Mapping[str, Shelf],
        markers: Mapping[Kind, SyncMarker],
        dead: frozenset[ObjectKey],
        settings: PlanSettings,
    ) -> None:
        self._shelves = shelves
        self._markers = markers
        self._dead = dead
        self._settings = settings
        self._seen: set[str] = set()
        self._skipped: set[ObjectKey] = set()

    def skip(self, key: ObjectKey, uid: str = "") -> None:
        """Say nothing about an object, nor about earlier ones of its name: it cannot be judged now."""
        self._skipped.add(key)
        self._seen.add(uid)

    def records(self, seen: Observation, registry: str) -> Records:
        """Return an object's records in a registry."""
        return self._shelves[registry].of(seen, self._models(seen))

    def judge(self, seen: Observation, home: str | None, facts: Facts) -> Difference | None:
        """Return how an object differs from its records; `home` is its registry's name, None when none is allowed."""
        self._seen.add(seen.uid)
        found = self.records(seen, home) if home is not None else {}
        here = self._lifted(seen, found)
        ahead = [model for model, record in found.items() if here[model] is not record]
        actions = self._planned(seen, here, facts) if home is not None else []
        undeploys = any(_undeploys(action, here) for action in actions)
        repairs = [_AHEAD] * len(ahead) + [_repair(action) for action in actions]
        refs = [RecordRef(home, seen.uid, model) for model in ahead] if home is not None else []
        labelled = want(seen, self._settings.prefix).model is not None
        for name in self._shelves:
            left = self._lifted(seen, self._left(seen, name, home, found))
            why = FORGOTTEN if name == home or not labelled else ELSEWHERE
            for action in leave(self._no_older(seen, left), left, self._settings, why):
                repairs.append(f"{_repair(action)} (in {name})")
                refs += [RecordRef(name, seen.uid, model) for model, each in left.items() if each.id == action.id]
                undeploys = undeploys or _undeploys(action, left)
        if not repairs:
            return None
        return Difference(
            seen.key,
            seen.uid,
            Reason.AHEAD if ahead else Reason.LEFT if refs else self._reason(seen, actions, here),
            tuple(repairs),
            tuple(refs),
            undeploys=undeploys,
            confirmed=self._confirms(seen.key),
        )

    def strays(self) -> list[Difference]:
        """Return the deployed records of this cluster whose objects were not among those judged or skipped."""
        found: dict[tuple[ObjectKey, str], list[RecordRef]] = {}
        for name, shelf in self._shelves.items():
            for key, uid, record in shelf.deployed():
                if uid not in self._seen and key not in self._skipped:
                    found.setdefault((key, uid), []).append(RecordRef(name, uid, record.model_id))
        why = ("undeploy: no event tells of this object",)
        return [
            Difference(key, uid, Reason.UNKNOWN, why, tuple(refs), undeploys=True, confirmed=self._confirms(key))
            for (key, uid), refs in sorted(found.items())
        ]

    def deployed(self) -> Counter[Kind]:
        """Return how many deployed records this cluster has, by kind."""
        known = {
            (key.kind, record.external_id) for shelf in self._shelves.values() for key, _, record in shelf.deployed()
        }
        return Counter(kind for kind, _ in known)

    def _models(self, seen: Observation) -> list[str]:
        model = want(seen, self._settings.prefix).model
        return list(dict.fromkeys((*seen.models, *([model] if model else []))))

    def _planned(self, seen: Observation, here: Records, facts: Facts) -> list[Action]:
        """Return the effects that `plan` wants, but those on records that do not say that they are ours."""
        strangers = {each.id for each in here.values() if not is_ours(each, self._settings.us.cluster_id)}
        actions = plan(self._no_older(seen, here), here, facts, self._settings)
        return [action for action in actions if type(action) in _VERBS and _touched(action) not in strangers]

    def _left(self, seen: Observation, name: str, home: str | None, here: Records) -> dict[str, Record]:
        """Return the records of an object that `plan` does not see: of former registries, or of forgotten models.

        One that is equal to one of its own is that one: two addresses lead to one registry. Models are forgotten when
        the broker's storage is lost, and the label with it.
        """
        own = set(self._models(seen)) if name == home else set()
        return {
            record.model_id: record
            for record in self._shelves[name].about(seen.uid)
            if record.model_id not in own and record != here.get(record.model_id)
        }

    def _lifted(self, seen: Observation, records: Records) -> dict[str, Record]:
        """Return records as a look would lift those that are ahead of the stream, so that no event reaches them.

        Only where a marker vouches for the stream: an event of the record's epoch may be on its way else.
        """
        marker, us = self._markers.get(seen.key.kind), self._settings.us.cluster_id
        if marker is None or not self._confirms(seen.key):
            return dict(records)
        return {
            model: lifted(seen, record) if is_ahead(seen, record, us, marker.epoch) else record
            for model, record in records.items()
        }

    def _no_older(self, seen: Observation, records: Records) -> Observation:
        return no_older(seen, records, self._settings.us.cluster_id)

    def _reason(self, seen: Observation, actions: list[Action], here: Records) -> Reason:
        effects = [action for action in actions if not isinstance(action, DeferPatch)]
        by_id = {each.id: each for each in here.values()}
        updates = [action for action in effects if isinstance(action, UpdateRecord)]
        if not effects:
            return Reason.DEFERRED
        if seen.key in self._dead:
            return Reason.DEAD_LETTER
        if any(isinstance(action, CreateRecord) for action in effects):
            return Reason.MISSING
        if any(_undeploys(action, here) for action in updates) and not seen.lives:
            return Reason.GONE
        if any(by_id[action.id].deployed is not action.deployed for action in updates):
            return Reason.STATE
        return Reason.CONTENT if updates else Reason.ID

    def _confirms(self, key: ObjectKey) -> bool:
        marker = self._markers.get(key.kind)
        return marker is not None and (not marker.scope or key.namespace in marker.scope)


class Triage(msgspec.Struct, frozen=True):
    """What becomes of differences. `waiting` would undeploy, and the stream is not known to be complete yet."""

    looks: tuple[Difference, ...]
    held: tuple[Difference, ...]
    waiting: tuple[Difference, ...]

    def held_of(self, kind: Kind) -> Uids:
        return frozenset((each.key, each.uid) for each in self.held if each.key.kind is kind)


def triage(differences: Iterable[Difference], deployed: Mapping[Kind, int], approved: Uids = frozenset()) -> Triage:
    """Hold the undeployments of a kind when they are more than max(5, 20 % of its deployed records) at once.

    `approved` are those that a person has released: they neither wait nor count.
    """
    looks: list[Difference] = []
    waiting: list[Difference] = []
    doubtful: dict[Kind, list[Difference]] = {}
    for each in differences:
        if not each.undeploys:
            looks.append(each)
        elif not each.confirmed:
            waiting.append(each)
        elif (each.key, each.uid) in approved:
            looks.append(each)
        else:
            doubtful.setdefault(each.key.kind, []).append(each)
    held: list[Difference] = []
    for kind, those in doubtful.items():
        is_too_many = len(those) > max(HOLD_MIN, deployed.get(kind, 0) // HOLD_SHARE)
        (held if is_too_many else looks).extend(those)
    return Triage(tuple(looks), tuple(held), tuple(waiting))


_AHEAD: Final = "lift the record: it is stamped newer than any event, and none would reach it"

_VERBS: Final[dict[type, str]] = {
    CreateRecord: "create a record",
    UpdateRecord: "change the record",
    PatchObject: "write the id",
    DeferPatch: "write the id later",
}


def _repair(action: Action) -> str:
    """Return what an action does, and why, for people."""
    undeploys = isinstance(action, UpdateRecord) and not action.deployed
    return f"{'undeploy the record' if undeploys else _VERBS[type(action)]}: {action.reason}"


def _touched(action: Action) -> str | None:
    match action:
        case UpdateRecord(id=record_id):
            return record_id
        case PatchObject(record_id=record_id) | DeferPatch(record_id=record_id):
            return record_id
        case _:
            return None


def _undeploys(action: Action, here: Records) -> bool:
    if not isinstance(action, UpdateRecord) or action.deployed:
        return False
    return any(each.id == action.id and each.deployed is not False for each in here.values())
