"""What the broker knows of one kind, compared with what the cluster says: which changes have to be published. Pure.

The inventory is the last event of each object. It is read from the broker before each pass (`producer/ledger.py`) and
then follows what is handed to the publisher, which never drops. It holds a small tuple per object and never a body: a
tombstone's body is the last message of its subject, fetched when it is needed.

Live changes say what happened. A complete pass says what must have happened: its differences are synthetic events.
Whatever contradicts the numbering of resourceVersions (an etcd put back to an older copy) begins a new epoch.
"""

from collections.abc import Iterable, Mapping
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
from producer.items import Observed
from shared.events import EventType
from shared.objects import ObjectKey, compare_resource_versions

GUARD_MIN: Final = 5
GUARD_SHARE: Final = 5  # one in five

Scope = tuple[str, ...]  # the namespaces that a pass lists completely; empty: all of them
Uids = frozenset[tuple[ObjectKey, str]]


class Outcome(msgspec.Struct, frozen=True):
    """How a pass ended. Only a complete one may be announced: up to here the stream is the cluster.

    `held` are the deletes that the guard keeps back; `left_scope` counts living entries that were not listed.
    """

    changes: tuple[Change, ...]
    complete: bool
    held: int = 0
    left_scope: int = 0


class Epoch:
    """The Unix second in which the present numbering of resourceVersions began; one for all kinds of a cluster."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def known(self, value: int) -> None:
        """Take over an epoch that was found in the broker."""
        self.value = max(self.value, value)

    def begin(self, now_s: int) -> None:
        """Begin a new one."""
        self.value = max(now_s, self.value + 1)


class _Pass(msgspec.Struct):
    """What an unfinished pass has seen.

    `known` counts the living entries in `scope` when it began; `highest` is the highest resourceVersion that the
    broker knew in `epoch`.
    """

    scope: Scope
    known: int
    epoch: int
    highest: str
    seen: set[ObjectKey] = msgspec.field(default_factory=set)


class Inventory:
    """The last event of each object of one kind."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._entries: dict[ObjectKey, Entry] = {}
        self._highest = (0, "")  # epoch, and the highest resourceVersion that was known in it
        self._pass: _Pass | None = None
        self._held: Uids = frozenset()
        self._forgotten: dict[str, tuple[str, ...]] = {}  # uid -> models that only we remember, until a complete pass

    def reload(self, entries: Mapping[ObjectKey, Entry], marker: tuple[int, str] = (0, "")) -> None:
        """Take over what the broker holds; `marker` is epoch and resourceVersion of the last sync marker.

        The epoch must have been told what was found, of all kinds, before the next pass begins. The models of a uid are
        not forgotten with the broker's storage, or when a second producer's late message stands in for ours.
        """
        epoch = self._epoch.value
        ours = (entry.resource_version for entry in self._entries.values() if entry.epoch == epoch)
        told = (version for at, version in (marker, self._highest) if at == epoch)
        self._highest = (epoch, _highest((*told, *ours)))
        models = self._forgotten | {entry.uid: entry.models for entry in self._entries.values() if entry.models}
        self._entries = {key: _remembering(entry, models.pop(entry.uid, ())) for key, entry in entries.items()}
        self._forgotten = models
        self._pass = None

    def living(self) -> int:
        return sum(not entry.deleted for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def acknowledged(self, key: ObjectKey, sequence: int) -> None:
        """Note where the last message about `key` is in the stream. Messages of one key are acknowledged in order."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = msgspec.structs.replace(entry, sequence=sequence)

    def begin_pass(self, scope: Scope = ()) -> None:
        """Begin a complete list of `scope`; what an unfinished pass has seen is forgotten."""
        epoch = self._epoch.value
        known = sum(not entry.deleted and _within(scope, key) for key, entry in self._entries.items())
        current = (entry.resource_version for entry in self._entries.values() if entry.epoch == epoch)
        told = self._highest[1] if self._highest[0] == epoch else ""
        self._pass = _Pass(scope, known, epoch, _highest((told, *current)))

    def observe(self, found: Observed, *, live: bool, now_s: int) -> tuple[Change, ...]:
        """Return what to publish for an object that exists; `live`: it has just changed."""
        entry = self._entries.get(found.key)
        if entry is not None and contradicts(entry, found, self._epoch.value):
            self._epoch.begin(now_s)
        changes = changes_of(entry, found, self._epoch.value, live=live, carried=self._forgotten.get(found.uid, ()))
        if self._pass is not None and not live:
            self._pass.seen.add(found.key)
        if not changes and entry is not None and entry.digest != found.digest:
            # Made by another version of the digest: from here on this one is compared.
            self._entries[found.key] = msgspec.structs.replace(entry, digest=found.digest)
        self._remember(changes)
        return changes

    def remove(self, found: Observed) -> tuple[Change, ...]:
        """Return what to publish for an object whose DELETED event came: always its last state, but only once."""
        entry = self._entries.get(found.key)
        if entry is not None and entry.uid == found.uid and entry.deleted:
            return ()
        models = carried_by(entry, found, self._forgotten.get(found.uid, ()))
        gone = change_to(EventType.DELETED, found, models, self._epoch.value)
        changes = (*former_owner(entry, found, self._epoch.value), gone)
        self._remember(changes)
        return changes

    def end_pass(self, version: str, *, doubtful: int, now_s: int) -> Outcome:
        """Conclude a complete list of resourceVersion `version`: what was not in it is gone, if it is in scope.

        With `doubtful` objects (they could not be identified) nothing is concluded: each might be any.
        """
        ended, self._pass = self._pass, None
        assert ended is not None, "no pass was begun"
        self._forgotten.clear()
        repeated = self._repeated(ended, version, now_s)
        living = {key: entry for key, entry in self._entries.items() if not entry.deleted and key not in ended.seen}
        absent = {key: entry for key, entry in living.items() if _within(ended.scope, key)}
        left_scope = len(living) - len(absent)
        if doubtful:
            return Outcome(repeated, complete=False, left_scope=left_scope)
        gone = frozenset((key, entry.uid) for key, entry in absent.items())
        self._held = held_back(gone, self._held, known=ended.known, remaining=len(ended.seen))
        tombstones = tuple(
            tombstone(key, entry, version, self._epoch.value)
            for key, entry in absent.items()
            if (key, entry.uid) not in self._held
        )
        self._remember(tombstones)
        return Outcome((*repeated, *tombstones), not self._held, len(self._held), left_scope)

    def _repeated(self, ended: _Pass, version: str, now_s: int) -> tuple[Change, ...]:
        """Return what has to be said again because it was last said in an earlier epoch.

        A consumer may have seen something fresher in that one, be it from what etcd has forgotten, from a second
        producer, or from this pass before it found out. Begins a new epoch when the whole list is older than what
        the broker knows.
        """
        older = ended.highest and compare_resource_versions(version, ended.highest) < 0
        if older and self._epoch.value == ended.epoch:
            self._epoch.begin(now_s)
        epoch = self._epoch.value
        earlier = ((key, entry) for key, entry in self._entries.items() if entry.epoch < epoch)
        repeated = tuple(
            said_again(key, entry, epoch)
            for key, entry in earlier
            if key in ended.seen or (entry.deleted and _within(ended.scope, key))
        )
        self._remember(repeated)
        return repeated

    def _remember(self, changes: Iterable[Change]) -> None:
        for change in changes:
            before, deleted = self._entries.get(change.key), change.type is EventType.DELETED
            identity = (change.uid, change.epoch, change.resource_version, change.digest, change.models)
            self._entries[change.key] = Entry(*identity, deleted, before.sequence if before is not None else 0)


def held_back(gone: Uids, held_before: Uids, *, known: int, remaining: int) -> Uids:
    """Return the deletes of a pass that must wait for a second opinion: more than max(5, 20 % of `known`) at once.

    What a second complete pass finds gone again is released, unless nothing at all remains in the scope: that is how
    a wrong cluster, a lost etcd or a missing right looks, and a person has to say that it is true.
    """
    limit = max(GUARD_MIN, known // GUARD_SHARE)
    if len(gone) <= limit:
        return frozenset()
    if not remaining:
        return gone
    unconfirmed = gone - held_before
    return unconfirmed if len(unconfirmed) > limit else frozenset()


def _remembering(entry: Entry, models: tuple[str, ...]) -> Entry:
    every = joined(models, entry.models)
    return entry if every == entry.models else msgspec.structs.replace(entry, models=every)


def _within(scope: Scope, key: ObjectKey) -> bool:
    return not scope or key.namespace in scope


def _highest(versions: Iterable[str]) -> str:
    """Return the greatest resourceVersion, or an empty text."""
    return max(versions, key=lambda version: (len(version), version), default="")
