"""Close records that a look names, and that the object's last event does not lead to.

Of an object that no event tells of: the broker's storage was lost and it was deleted in the gap, or its name belongs to
another uid by now. Or in a registry that is not the object's any more, and which nobody here remembers. The sweep finds
both (`sweep/compare.py`), and asks the shard's owner by a look.

Nothing is believed of what the look says but where to look: the object is read from the API server, the record from its
registry. Only a record that names our cluster is touched; or a predecessor's, which names none, when its object is gone
and the look says that a person has chosen it.

An object's own records are left to `reconcile.py`, but for one that is ahead of the stream: that is lifted first.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from consumer.act import Actor
from consumer.actions import UpdateRecord
from consumer.freshness import Freshness, Order, compare
from consumer.looks import RecordRef
from consumer.lookup import Lookup
from consumer.observation import Observation, want
from consumer.plan import ELSEWHERE, FORGOTTEN, PlanSettings, leave
from consumer.predecessors import is_unclaimed
from consumer.records import Record
from consumer.retelling import is_ahead, lifted, retold
from shared.errors import PermanentError
from shared.objects import Metadata, ObjectKey, ReducedObject

logger = logging.getLogger(__name__)

_NO_STATE: Final = Freshness(0, "1", deleted=True)


class Registries(Protocol):
    """The part of `registries.py` that is needed here."""

    async def choose(self, seen: Observation) -> Lookup: ...
    async def find(self, name: str) -> Lookup | None: ...


class Strays:
    """Closes strays, for the owner of the object's shard. `forget` is told the uid of each object that was lifted."""

    def __init__(
        self, actor: Actor, registries: Registries, settings: PlanSettings, forget: Callable[[str], None]
    ) -> None:
        self._actor = actor
        self._registries = registries
        self._settings = settings
        self._forget = forget

    async def close(self, key: ObjectKey, refs: Sequence[RecordRef], last: Observation | None, now: str) -> bool:
        """Close what of the named records is a stray; return whether one was. Raises the errors of the adapters.

        `last` is the last event of the object of that name, `now` the time in RFC 3339.
        """
        wrote = False
        for uid in dict.fromkeys(ref.uid for ref in refs):
            told = last if last is not None and last.uid == uid else None
            seen = await self._now(key, uid, told, now)
            if seen is None:
                continue
            home = await self._home(seen) if told is not None else None
            own = {*seen.models, want(seen, self._settings.prefix).model}
            for ref in (each for each in refs if each.uid == uid):
                if not (ref.registry == home and ref.model in own):
                    wrote = await self._close(ref, seen, home) or wrote
                elif told is not None:
                    wrote = await self._lift(ref, told, seen) or wrote
        return wrote

    async def _now(self, key: ObjectKey, uid: str, told: Observation | None, now: str) -> Observation | None:
        """Return the object as it stands, or its end; None for one that lives without an event: that is to come."""
        known = told or _unheard_of(key, uid, now)
        live = await self._actor.live(known)
        if live is None:
            return replace(known, freshness=replace(known.freshness, deleted=True), time=now)
        return None if told is None else replace(live, time=now)

    async def _home(self, seen: Observation) -> str | None:
        """Return the name of the object's own registry, where `reconcile.py` sees to its records; None: it has none."""
        try:
            return (await self._registries.choose(seen)).place.name
        except PermanentError:
            return None

    async def _lift(self, ref: RecordRef, told: Observation, seen: Observation) -> bool:
        """Let events reach a record again that is ahead of the stream, where the object is as its last event told.

        In a write of its own, which changes nothing else: what the record should say is planned after it.
        """
        said = retold(told, seen, self._settings.prefix)
        lookup = await self._registries.find(ref.registry)
        if said is None or said.moved_on or lookup is None:
            return False
        record = (await lookup.records(seen, (ref.model,), thorough=True)).get(ref.model)
        if record is None or not is_ahead(told, record, self._settings.us.cluster_id):
            return False
        properties = lifted(told, record).properties
        action = UpdateRecord(record.id, record.deployed is True, properties, "the record is ahead of the stream")
        wrote = (await self._actor.perform([action], seen, lookup.place)).wrote
        self._forget(seen.uid)
        return wrote

    async def _close(self, ref: RecordRef, seen: Observation, home: str | None) -> bool:
        lookup = await self._registries.find(ref.registry)
        if lookup is None:
            logger.warning("a look names a registry that is not allowed", extra={"object": str(seen.key)})
            return False
        record = (await lookup.records(seen, (ref.model,), thorough=True)).get(ref.model)
        if record is None or not (record.stamp or (ref.unclaimed and _is_orphan(record, seen))):
            return False  # one that names another cluster is left alone by `leave`
        labelled = want(seen, self._settings.prefix).model is not None
        why = FORGOTTEN if ref.registry == home or not labelled else ELSEWHERE
        actions = leave(_as_new(seen, record), {ref.model: record}, self._settings, why)
        return (await self._actor.perform(actions, seen, lookup.place)).wrote


def _unheard_of(key: ObjectKey, uid: str, now: str) -> Observation:
    """Return what is known of an object that no event tells of."""
    obj = ReducedObject(key.kind.kubernetes_kind, Metadata(key.name, key.namespace, uid, resource_version=""))
    return Observation(key, uid, _NO_STATE, "", (), now, obj)


def _is_orphan(record: Record, seen: Observation) -> bool:
    """Whether a record is a predecessor's, says DEPLOYED, and its object is gone."""
    return is_unclaimed(record) and record.deployed is True and not seen.lives


def _as_new(seen: Observation, record: Record) -> Observation:
    """Return what was just seen, as fresh as what the record says at least: nothing is newer than now."""
    stamp = record.stamp
    if stamp is None:
        return seen
    seen = replace(seen, digest=seen.digest or stamp.digest)
    if compare(seen.freshness, stamp.freshness) is not Order.OLDER:
        return seen
    return replace(seen, freshness=replace(stamp.freshness, deleted=seen.freshness.deleted))
