"""What the broker knows of one kind, compared with what the cluster says: which changes have to be published. Pure.

The inventory is the last event of each object. It is read from the broker before each pass (`producer/ledger.py`) and
then follows what is handed to the publisher, which never drops. It holds a small tuple per object and never a body: a
tombstone's body is the last message of its subject, fetched when it is needed.

Live changes say what happened. A complete pass says what must have happened: its differences are synthetic events.
Whatever contradicts the numbering of resourceVersions (an etcd put back to an older copy) begins a new epoch.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from producer.items import Observed
from shared.events import EventType
from shared.objects import ObjectKey, compare_resource_versions

GUARD_MIN: Final = 5
GUARD_SHARE: Final = 5  # one in five

Scope = tuple[str, ...]  # the namespaces that a pass lists completely; empty: all of them
Uids = frozenset[tuple[ObjectKey, str]]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The last event of one object. `sequence` is its place in the stream, 0 while it is not acknowledged."""

    uid: str
    epoch: int
    resource_version: str
    digest: str
    models: tuple[str, ...]
    deleted: bool
    sequence: int = 0


class Change(msgspec.Struct, frozen=True):
    """What to publish about one object; without a body, it is the one of the object's last message.

    `corrects` as in `shared.events.Event`. The shell replaces it where it fetches the body: it then knows better.
    """

    type: EventType
    key: ObjectKey
    uid: str
    epoch: int
    resource_version: str
    digest: str
    models: tuple[str, ...]
    corrects: int | None = None
    body: dict[str, Any] | None = None


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
    published: set[ObjectKey] = msgspec.field(default_factory=set)


class Inventory:
    """The last event of each object of one kind."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._entries: dict[ObjectKey, Entry] = {}
        self._marker_version = ""
        self._pass: _Pass | None = None
        self._held: Uids = frozenset()

    def reload(self, entries: Mapping[ObjectKey, Entry], marker: tuple[int, str] = (0, "")) -> None:
        """Take over what the broker holds; `marker` is epoch and resourceVersion of the last sync marker.

        The epoch must have been told what was found, of all kinds, before the next pass begins.
        """
        self._entries = dict(entries)
        self._marker_version = marker[1] if marker[0] == self._epoch.value else ""
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
        self._pass = _Pass(scope, known, epoch, _highest((self._marker_version, *current)))

    def observe(self, found: Observed, *, live: bool, now_s: int) -> tuple[Change, ...]:
        """Return what to publish for an object that exists; `live`: it has just changed."""
        entry = self._entries.get(found.key)
        if entry is not None and contradicts(entry, found, self._epoch.value):
            self._epoch.begin(now_s)
        changes = changes_of(entry, found, self._epoch.value, live=live)
        if self._pass is not None and not live:
            self._pass.seen.add(found.key)
            if changes:
                self._pass.published.add(found.key)
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
        changes = (_change(EventType.DELETED, found, _carried(entry, found), self._epoch.value),)
        self._remember(changes)
        return changes

    def end_pass(self, version: str, *, doubtful: int, now_s: int) -> Outcome:
        """Conclude a complete list of resourceVersion `version`: what was not in it is gone, if it is in scope.

        With `doubtful` objects (they could not be identified) nothing is concluded: each might be any.
        """
        ended, self._pass = self._pass, None
        assert ended is not None, "no pass was begun"
        repeated = self._restored(ended, version, now_s)
        living = {key: entry for key, entry in self._entries.items() if not entry.deleted and key not in ended.seen}
        absent = {key: entry for key, entry in living.items() if _within(ended.scope, key)}
        left_scope = len(living) - len(absent)
        if doubtful:
            return Outcome(repeated, complete=False, left_scope=left_scope)
        gone = frozenset((key, entry.uid) for key, entry in absent.items())
        self._held = held_back(gone, self._held, known=ended.known, remaining=len(ended.seen))
        tombstones = tuple(
            _tombstone(key, entry, version, self._epoch.value)
            for key, entry in absent.items()
            if (key, entry.uid) not in self._held
        )
        self._remember(tombstones)
        return Outcome((*repeated, *tombstones), not self._held, len(self._held), left_scope)

    def _restored(self, ended: _Pass, version: str, now_s: int) -> tuple[Change, ...]:
        """Begin a new epoch when the whole list is older than what the broker knows; say again what the pass said.

        What it published before that was found carries the old epoch, in which newer versions may have been seen.
        """
        if self._epoch.value != ended.epoch or not ended.highest:
            return ()
        if compare_resource_versions(version, ended.highest) >= 0:
            return ()
        self._epoch.begin(now_s)
        repeated = tuple(_repeated(key, self._entries[key], self._epoch.value) for key in sorted(ended.published))
        self._remember(repeated)
        return repeated

    def _remember(self, changes: Iterable[Change]) -> None:
        for change in changes:
            before = self._entries.get(change.key)
            self._entries[change.key] = Entry(
                uid=change.uid,
                epoch=change.epoch,
                resource_version=change.resource_version,
                digest=change.digest,
                models=change.models,
                deleted=change.type is EventType.DELETED,
                sequence=before.sequence if before is not None else 0,
            )


def contradicts(entry: Entry, found: Observed, epoch: int) -> bool:
    """Whether an object cannot be in the same numbering of resourceVersions as what the broker knows of its name.

    The next owner of a name was created after the last one had gone, so it cannot be older than that.
    """
    if entry.epoch != epoch:
        return False
    order = compare_resource_versions(found.resource_version, entry.resource_version)
    if entry.uid != found.uid:
        return order <= 0
    same_place_other_content = order == 0 and comparable(entry, found) and entry.digest != found.digest
    return entry.deleted or order < 0 or same_place_other_content


def comparable(entry: Entry, found: Observed) -> bool:
    """Whether the two digests were made by the same version of the digest."""
    return entry.digest.partition(":")[0] == found.digest.partition(":")[0]


def changes_of(entry: Entry | None, found: Observed, epoch: int, *, live: bool) -> tuple[Change, ...]:
    """Return what to publish so that the stream says what `found` says; nothing when it does already."""
    models = _carried(entry, found)
    if entry is None:
        return (_change(EventType.CREATED, found, models, epoch, None if live else 0),)
    corrects = None if live else entry.sequence
    if entry.uid != found.uid:
        # A name can be taken again only when its former owner is gone: that delete was missed, and comes first.
        before = () if entry.deleted else (_tombstone(found.key, entry, found.resource_version, epoch),)
        return (*before, _change(EventType.CREATED, found, models, epoch, corrects))
    if entry.deleted:  # alive again: always a correction, however it was seen
        return (_change(EventType.UPDATED, found, models, epoch, entry.sequence),)
    if comparable(entry, found):
        changed = entry.digest != found.digest
    else:
        # Digests of two versions say nothing about each other; an untouched object has not changed.
        changed = entry.resource_version != found.resource_version
    return (_change(EventType.UPDATED, found, models, epoch, corrects),) if changed else ()


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


def _carried(entry: Entry | None, found: Observed) -> tuple[str, ...]:
    """Return every registered-model id that this uid has carried, oldest first: sticky, even when the label is gone."""
    models = entry.models if entry is not None and entry.uid == found.uid else ()
    return (*models, found.model) if found.model and found.model not in models else models


def _change(
    what: EventType, found: Observed, models: tuple[str, ...], epoch: int, corrects: int | None = None
) -> Change:
    return Change(what, found.key, found.uid, epoch, found.resource_version, found.digest, models, corrects, found.body)


def _tombstone(key: ObjectKey, entry: Entry, version: str, epoch: int) -> Change:
    """Return the delete of an object that nobody saw go: its last known state, final state unknown.

    At the resourceVersion that proved the absence, not at the last known one: the object may have changed after what
    we know, and whoever has seen that must not take the delete for older news.
    """
    return Change(EventType.DELETED, key, entry.uid, epoch, version, entry.digest, entry.models, entry.sequence)


def _repeated(key: ObjectKey, entry: Entry, epoch: int) -> Change:
    version, sequence = entry.resource_version, entry.sequence
    what = EventType.DELETED if entry.deleted else EventType.UPDATED
    return Change(what, key, entry.uid, epoch, version, entry.digest, entry.models, sequence)


def _within(scope: Scope, key: ObjectKey) -> bool:
    return not scope or key.namespace in scope


def _highest(versions: Iterable[str]) -> str:
    """Return the greatest resourceVersion, or an empty text."""
    return max(versions, key=lambda version: (len(version), version), default="")
