"""What a look does: it says again what the object's last event told, and nothing that no event has told. Pure.

The live object is newer than its last event as long as a change is on its way, and its producer may be down. A record
of such a state would be undone by nobody when the object goes back to what was told: there is nothing to publish then.
Later events would be old news to it, and so would be missing from the history. So what is recorded is what was told;
the live object says whether that still holds, and what writing the id to it would cost.
"""

import msgspec
from msgspec.structs import replace

from consumer.discovery import asked_of
from consumer.freshness import Order, compare
from consumer.observation import Observation, want
from consumer.plan import Records
from consumer.records import PROPERTY, Record, encode_stamp


class Retold(msgspec.Struct, frozen=True):
    """What is to be said again. `moved_on`: the object asks for something else by now; its event is still to come."""

    seen: Observation
    moved_on: bool


def retold(last: Observation, live: Observation | None, prefix: str) -> Retold | None:
    """Return what to say again of the last event, given the live object (None: it is gone).

    None when that would be wrong: the object has ended and no event has told it, or an event has told its end and it
    lives. The event that is still to come says so. `prefix` is the configured one of our labels.
    """
    if last.lives is not (live is not None and live.lives):
        return None
    if live is None:
        return Retold(last, moved_on=False)
    same = (want(last, prefix), asked_of(last.obj, prefix)) == (want(live, prefix), asked_of(live.obj, prefix))
    return Retold(replace(last, obj=live.obj) if same else last, moved_on=not same)


def no_older(seen: Observation, records: Records, cluster_id: str) -> Observation:
    """Return what was seen, as fresh as the records that it is known to hold in spite of.

    They may have been written from a state that the stream has lost, or by an earlier release's look. Another
    cluster's records say nothing: they count another history.
    """
    for record in records.values():
        stamp = record.stamp
        if stamp is None or stamp.cluster_id != cluster_id:
            continue
        if (stamp.epoch, stamp.deleted) != (seen.freshness.epoch, seen.freshness.deleted):
            continue
        if compare(seen.freshness, stamp.freshness) is Order.OLDER:
            seen = replace(seen, freshness=stamp.freshness)
    return seen


def is_ahead(seen: Observation, record: Record, cluster_id: str, known_epoch: int = 0) -> bool:
    """Whether a record of ours is stamped newer than any event can be that follows what was seen: it is frozen then.

    From a higher epoch, which only a clock that was wrong, or a person, has made; or from the end of an object that
    lives, since no end is taken back within an epoch. `known_epoch`: the highest that the stream is known to have seen.
    """
    stamp, fresh = record.stamp, seen.freshness
    if stamp is None or stamp.cluster_id != cluster_id:
        return False
    if stamp.epoch == fresh.epoch:
        return stamp.deleted and not fresh.deleted
    return stamp.epoch > max(fresh.epoch, known_epoch)


def lifted(seen: Observation, record: Record) -> Record:
    """Return a record that is ahead as if it had been written from what was seen; what it says stays as it is."""
    stamp, fresh = record.stamp, seen.freshness
    assert stamp is not None, "what is ahead has a stamp"
    stamp = replace(stamp, epoch=fresh.epoch, resource_version=fresh.resource_version, deleted=fresh.deleted)
    return replace(record, properties=record.properties | {PROPERTY: encode_stamp(stamp)})
