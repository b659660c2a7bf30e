"""What the broker says of one object, compared with what the cluster says: the changes to publish. Pure.

`producer/inventory.py` holds the entries, and asks this for each object.
"""

from typing import Any

import msgspec

from producer.items import Observed
from shared.events import EventType
from shared.objects import ObjectKey, compare_resource_versions


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The last event of one object.

    `deleted_at` is the Unix second in which its delete was seen, 0 while it lives. `sequence` is the place in the
    stream of the last message that is acknowledged, 0 when there is none.
    """

    uid: str
    epoch: int
    resource_version: str
    digest: str
    models: tuple[str, ...]
    deleted_at: int = 0
    sequence: int = 0

    @property
    def deleted(self) -> bool:
        return self.deleted_at > 0


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


def contradicts(entry: Entry, found: Observed, epoch: int) -> bool:
    """Whether an object cannot be in the same numbering of resourceVersions as what the broker knows of its name.

    The next owner of a name was created after the last one had gone, so it cannot be older than that. It may be at the
    same version: a delete that nobody saw is published at the version of whoever was found in the place.
    """
    if entry.epoch != epoch:
        return False
    order = compare_resource_versions(found.resource_version, entry.resource_version)
    if entry.uid != found.uid:
        return order < 0 or (order == 0 and not entry.deleted)
    same_place_other_content = order == 0 and comparable(entry, found) and entry.digest != found.digest
    return entry.deleted or order < 0 or same_place_other_content


def comparable(entry: Entry, found: Observed) -> bool:
    """Whether the two digests were made by the same version of the digest."""
    return entry.digest.partition(":")[0] == found.digest.partition(":")[0]


def changes_of(
    entry: Entry | None, found: Observed, epoch: int, *, live: bool, carried: tuple[str, ...] = ()
) -> tuple[Change, ...]:
    """Return what to publish so that the stream says what `found` says; nothing when it does already.

    `carried` are models of this uid that the entry may not name.
    """
    models = carried_by(entry, found, carried)
    if entry is None:
        return (change_to(EventType.CREATED, found, models, epoch, None if live else 0),)
    corrects = None if live else entry.sequence
    if entry.uid != found.uid:
        # A name can be taken again only when its former owner is gone: that delete was missed, and comes first.
        known = entry.deleted and entry.epoch == epoch
        before = () if known else (tombstone(found.key, entry, found.resource_version, epoch),)
        return (*before, change_to(EventType.CREATED, found, models, epoch, corrects))
    if entry.deleted:  # alive again: always a correction, however it was seen
        return (change_to(EventType.UPDATED, found, models, epoch, entry.sequence),)
    if comparable(entry, found):
        changed = entry.digest != found.digest
    else:
        # Digests of two versions say nothing about each other; an untouched object has not changed.
        changed = entry.resource_version != found.resource_version
    again = not live and entry.epoch < epoch  # as in `Inventory._repeated`
    return (change_to(EventType.UPDATED, found, models, epoch, corrects),) if changed or again else ()


def former_owner(entry: Entry | None, gone: Observed, epoch: int) -> tuple[Change, ...]:
    """Return the missed delete of a name's former owner, when that of a later owner is the first that we see of it."""
    if entry is None or entry.deleted or entry.uid == gone.uid or entry.epoch != epoch:
        return ()
    if compare_resource_versions(gone.resource_version, entry.resource_version) < 0:
        return ()  # a second producer knows already who came after the one that is gone
    return (tombstone(gone.key, entry, gone.resource_version, epoch),)


def joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def carried_by(entry: Entry | None, found: Observed, carried: tuple[str, ...]) -> tuple[str, ...]:
    """Return every registered-model id that this uid has carried, oldest first: sticky, even when the label is gone."""
    models = entry.models if entry is not None and entry.uid == found.uid else ()
    return joined(joined(carried, models), (found.model,) if found.model else ())


def change_to(
    what: EventType, found: Observed, models: tuple[str, ...], epoch: int, corrects: int | None = None
) -> Change:
    return Change(what, found.key, found.uid, epoch, found.resource_version, found.digest, models, corrects, found.body)


def tombstone(key: ObjectKey, entry: Entry, version: str, epoch: int) -> Change:
    """Return the delete of an object that nobody saw go: its last known state, final state unknown.

    At the resourceVersion that proved the absence, not at the last known one: the object may have changed after what
    we know, and whoever has seen that must not take the delete for older news.
    """
    return Change(EventType.DELETED, key, entry.uid, epoch, version, entry.digest, entry.models, entry.sequence)


def said_again(key: ObjectKey, entry: Entry, epoch: int) -> Change:
    version, sequence = entry.resource_version, entry.sequence
    what = EventType.DELETED if entry.deleted else EventType.UPDATED
    return Change(what, key, entry.uid, epoch, version, entry.digest, entry.models, sequence)
