"""What the broker knows of one list+watch, compared with what the cluster says: what has to be published. Pure.

The inventory is the last event of each object of one kind, in one namespace or in all. It is read from the broker
before each pass (`producer/ledger.py`) and then follows what is handed to the publisher, which never drops. It holds a
small tuple per object and never a body: a tombstone's body is the last message of its subject, fetched when needed.

Live changes say what happened. A complete pass says what must have happened: its differences are synthetic events.
Whatever contradicts the numbering of resourceVersions (an etcd put back to an older copy) begins a new epoch.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec

from producer.changes import (
    Change,
    Entry,
    carried_by,
    change_to,
    changes_of,
    contradicts,
    former_owner,
    joined,
    said_again,
    tombstone,
)
from producer.entries import Entries, key_of
from producer.guard import Guard, Uids
from producer.items import Observed
from producer.passes import Epoch, Outcome, Pass, Scope, Verified, highest_of, within
from shared.events import EventType
from shared.objects import ObjectKey, compare_resource_versions

_NOTHING: Final = Verified()


class Inventory:
    """The last event of each object of one list+watch."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._entries = Entries()
        self._highest = (0, "")  # epoch, and the highest resourceVersion that was known in it
        self._scope: Scope = None
        self._pass: Pass | None = None
        self._changed = 0  # how often it was read anew or compared
        self._guard = Guard()
        self._left: set[ObjectKey] = set()  # living, but out of the selection
        self._under_way: Counter[ObjectKey] = Counter()  # changes that are not acknowledged
        self._forgotten: dict[str, tuple[str, ...]] = {}  # uid -> models that only we remember, until a complete pass

    # what is known

    @property
    def entries(self) -> Mapping[ObjectKey, Entry]:
        """A view, until the next `reload`."""
        return MappingProxyType(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def living(self) -> int:
        return self._entries.living

    @property
    def left_scope(self) -> int:
        """How many living objects are out of the selection: nobody watches them."""
        return len(self._left)

    @property
    def held(self) -> Uids:
        """The deletes that wait for a second list or for a person."""
        return self._guard.held

    @property
    def in_pass(self) -> bool:
        return self._pass is not None

    @property
    def basis(self) -> tuple[int, int]:
        """Changes when the inventory is read anew or compared, or an epoch begins: earlier findings are void then."""
        return self._changed, self._epoch.value

    def tombstones(self) -> Iterable[tuple[ObjectKey, Entry]]:
        """Return the deletes that are in the stream: acknowledged, and nothing after them is under way."""
        return [(key, one) for key, one in self._entries.tombstones() if not self._under_way.get(key)]

    def covers(self, key: ObjectKey) -> bool:
        """Whether the object's namespace is in the scope of the present or last pass."""
        return within(self._scope, key)

    def names(self) -> set[str]:
        """Return the texts of all keys (`entries.key_of`): pointers to what is there."""
        return set(self._entries.names())

    def expects(self, key: ObjectKey) -> bool:
        """Whether the object should be in a complete list: it lives, in scope, selected, and is not held for gone."""
        entry = self._entries.get(key)
        if entry is None or entry.deleted or not self.covers(key):
            return False
        return key not in self._left and not self._guard.holds(key, entry.uid)

    # what the broker says

    def reload(self, entries: Mapping[ObjectKey, Entry], marker: tuple[int, str] = (0, "")) -> None:
        """Take over what the broker holds; `marker` is epoch and resourceVersion of the last sync marker.

        The epoch must have been told what was found, of all kinds, before the next pass begins. The models of a uid are
        not forgotten with the broker's storage, or when a second producer's late message stands in for ours.
        """
        epoch = self._epoch.value
        told = (version for at, version in (marker, self._highest) if at == epoch)
        self._highest = (epoch, highest_of(chain(told, self._entries.versions_in(epoch))))
        former, self._entries = self._entries, entries if isinstance(entries, Entries) else Entries(entries)
        self._keep_models(former)
        self._left = {key for key in self._left if key in self._entries and not self._entries[key].deleted}
        self._under_way.clear()
        self._pass = None
        self._changed += 1

    def _keep_models(self, former: Entries) -> None:
        """Remember the models that only `former` or a lost stream knew: with the uid's entry, where it has one."""
        for _, entry in former.unlike(self._entries):
            if entry.models:
                self._forgotten[entry.uid] = joined(self._forgotten.get(entry.uid, ()), entry.models)
        if self._forgotten:
            for key, entry in self._entries.items():
                models = joined(self._forgotten.pop(entry.uid, ()), entry.models)
                if models != entry.models:
                    self._entries[key] = msgspec.structs.replace(entry, models=models)

    def acknowledged(self, key: ObjectKey, sequence: int) -> None:
        """Note where the last message about `key` is in the stream. Messages of one key are acknowledged in order."""
        self._under_way[key] -= 1
        if self._under_way[key] <= 0:
            del self._under_way[key]
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = msgspec.structs.replace(entry, sequence=sequence)

    def forget(self, key: ObjectKey, purged: Entry) -> None:
        """Drop a tombstone whose messages were purged, unless something was said about the object since."""
        if self._entries.get(key) != purged or not purged.deleted:
            return
        epoch = self._epoch.value
        told = self._highest[1] if self._highest[0] == epoch else ""
        version = purged.resource_version if purged.epoch == epoch else ""
        self._highest = (epoch, highest_of((told, version)))  # what comes later is numbered higher all the same
        del self._entries[key]

    # what the cluster says

    def begin_pass(self, scope: Scope = None) -> None:
        """Begin a complete list of `scope`; what an unfinished pass has seen is forgotten."""
        epoch = self._epoch.value
        told = self._highest[1] if self._highest[0] == epoch else ""
        self._scope = scope
        known = self.living() if scope is None else sum(1 for _ in self._living_in_scope())
        highest = highest_of(chain((told,), self._entries.versions_in(epoch)))
        self._pass = Pass(known, epoch, highest, self.names())
        self._changed += 1

    def observe(self, found: Observed, *, live: bool, now_s: int) -> tuple[Change, ...]:
        """Return what to publish for an object that exists; `live`: it has just changed."""
        entry = self._entries.get(found.key)
        if entry is not None and contradicts(entry, found, self._epoch.value):
            self._epoch.begin(now_s)
        changes = changes_of(entry, found, self._epoch.value, live=live, carried=self._forgotten.get(found.uid, ()))
        if self._pass is not None and not live:
            self._pass.unseen.discard(str(found.key))
            self._pass.seen += 1
        if not changes and entry is not None and entry.digest != found.digest:
            # Made by another version of the digest: from here on this one is compared.
            self._entries[found.key] = msgspec.structs.replace(entry, digest=found.digest)
        self._left.discard(found.key)
        self._remember(changes, now_s)
        return changes

    def remove(self, found: Observed, *, now_s: int) -> tuple[Change, ...]:
        """Return what to publish for an object whose DELETED event came: always its last state, but only once."""
        entry = self._entries.get(found.key)
        if entry is not None and entry.uid == found.uid and entry.deleted:
            return ()
        models = carried_by(entry, found, self._forgotten.get(found.uid, ()))
        gone = change_to(EventType.DELETED, found, models, self._epoch.value)
        changes = (*former_owner(entry, found, self._epoch.value), gone)
        self._remember(changes, now_s)
        return changes

    def left(self, key: ObjectKey, uid: str) -> None:
        """Note that the object of a DELETED event exists still: it is no longer selected, and nothing is published."""
        entry = self._entries.get(key)
        if entry is not None and entry.uid == uid and not entry.deleted:
            self._left.add(key)

    def absent(self) -> dict[ObjectKey, Entry]:
        """Return the living entries that the present pass did not see, in scope or not."""
        assert self._pass is not None, "no pass was begun"
        unseen = ((key, self._entries[key]) for key in map(key_of, self._pass.unseen) if key in self._entries)
        return {key: entry for key, entry in unseen if not entry.deleted}

    def end_pass(self, version: str, *, doubtful: int, now_s: int, verified: Verified = _NOTHING) -> Outcome:
        """Conclude a complete list of resourceVersion `version`: what was not in it is gone, if it is in scope.

        Outside the scope, it is gone with its namespace. With `doubtful` objects (they could not be identified) nothing
        is concluded: each might be any.
        """
        absent, ended = self.absent(), self._pass
        assert ended is not None, "no pass was begun"
        self._pass = None
        self._changed += 1
        self._forgotten.clear()
        repeated = self._repeated(ended, version, now_s)
        gone = {key: entry for key, entry in absent.items() if self._is_gone(key, verified)}
        self._left = absent.keys() - gone.keys()
        if doubtful:
            return Outcome(repeated, complete=False, left_scope=self.left_scope)
        existing = verified.elsewhere & absent.keys()
        known = ended.known + sum(not self.covers(key) for key in gone) - sum(map(self.covers, existing))
        uids = frozenset((key, entry.uid) for key, entry in gone.items())
        held = self._guard.judge(uids, known=known, remaining=ended.seen + len(existing))
        tombstones = tuple(
            tombstone(key, entry, version, self._epoch.value)
            for key, entry in gone.items()
            if (key, entry.uid) not in held
        )
        self._remember(tombstones, now_s)
        return Outcome((*repeated, *tombstones), not held, len(held), self.left_scope)

    def kind_absent(self, now_s: int) -> Outcome:
        """Conclude nothing from a list that answers 404: the kind is not installed, and all its deletes are held.

        Those that a person has approved are said at the last known resourceVersion, for no list proves the absence.
        """
        living = {key: self._entries[key] for key in self._living_in_scope()}
        held = self._guard.kind_absent(frozenset((key, entry.uid) for key, entry in living.items()))
        tombstones = tuple(
            tombstone(key, entry, entry.resource_version, self._epoch.value)
            for key, entry in living.items()
            if (key, entry.uid) not in held
        )
        self._remember(tombstones, now_s)
        return Outcome(tombstones, complete=False, held=len(held), left_scope=self.left_scope)

    def approve(self, uids: Uids) -> Uids:
        """Release held deletes because a person says so; return those that are held at all.

        The next complete pass (or `kind_absent`) deletes those of them that are still absent, whatever the guard says.
        """
        return self._guard.approve(uids)

    def _is_gone(self, key: ObjectKey, verified: Verified) -> bool:
        return key not in verified.elsewhere and (self.covers(key) or key.namespace in verified.vanished)

    def _living_in_scope(self) -> Iterable[ObjectKey]:
        return filter(self.covers, self._entries.living_keys())

    def _repeated(self, ended: Pass, version: str, now_s: int) -> tuple[Change, ...]:
        """Return what has to be said again because it was last said in an earlier epoch.

        A consumer may have seen something fresher in that one, be it from what etcd has forgotten, from a second
        producer, or from this pass before it found out. Begins a new epoch when the whole list is older than what
        the broker knows.
        """
        older = ended.highest and compare_resource_versions(version, ended.highest) < 0
        if older and self._epoch.value == ended.epoch:
            self._epoch.begin(now_s)
        epoch = self._epoch.value
        repeated = tuple(
            said_again(key, entry, epoch)
            for key, entry in self._entries.before(epoch)
            if str(key) not in ended.unseen or (entry.deleted and self.covers(key))
        )
        self._remember(repeated, now_s)
        return repeated

    def _remember(self, changes: Iterable[Change], now_s: int) -> None:
        for change in changes:
            before = self._entries.get(change.key)
            identity = (change.uid, change.epoch, change.resource_version, change.digest, change.models)
            deleted_at = now_s if change.type is EventType.DELETED else 0
            self._entries[change.key] = Entry(*identity, deleted_at, before.sequence if before is not None else 0)
            self._under_way[change.key] += 1
            self._left.discard(change.key)
