"""Inventories, passes over them, and what was said, short enough for tables."""

from producer.changes import Entry
from producer.inventory import Inventory
from producer.passes import Epoch
from shared.events import EventType
from tests.unit.producer.observed import observed

NOW_S = 2_000
EPOCH = 1_000
CREATED, UPDATED, DELETED = EventType.CREATED, EventType.UPDATED, EventType.DELETED


def entry(found, *, epoch=EPOCH, deleted=False, models=(), sequence=7):
    """What the broker holds after `found` was published."""
    return Entry(found.uid, epoch, found.resource_version, found.digest, models, NOW_S if deleted else 0, sequence)


def inventory(*entries, epoch=EPOCH, marker=(0, "")):
    made = Inventory(Epoch(epoch))
    made.reload(dict(entries), marker)
    return made


def known(found, **kwargs):
    return (found.key, entry(found, **kwargs))


def full_pass(made, *listed, version="100", doubtful=0, scope=None, **verified):
    """Run a pass over `listed`; return the changes and the outcome."""
    made.begin_pass(scope)
    changes = [change for found in listed for change in made.observe(found, live=False, now_s=NOW_S)]
    outcome = made.end_pass(version, doubtful=doubtful, now_s=NOW_S, **verified)
    return [*changes, *outcome.changes], outcome


def said(changes):
    """The gist: what, which uid, in which epoch, correcting what."""
    return [(c.type, c.uid, c.epoch, c.corrects) for c in changes]


def live(made, found):
    return made.observe(found, live=True, now_s=NOW_S)


def many(count, **kwargs):
    return [observed(f"m{i}", uid=f"u{i}", **kwargs) for i in range(count)]


A = observed("a", version=10, model="1")
CHANGED = observed("a", version=11, model="2")
NOISE = observed("a", version=11, model="1")
TAKEN = observed("a", uid="u2", version=20, model="3")
OLDER = observed("a", version=9, model="1")
SAME_PLACE = observed("a", version=10, model="2")
