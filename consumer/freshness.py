"""Which of two states of one object is newer. Pure.

Deliveries come late, twice and out of order; nothing but this comparison decides whether one is news. It is made three
times, each for its own reason: by the work queue (newest per uid), by the handler's memory (no call for what is known),
and, as the truth, against the record itself, which carries the freshness of what it says.
"""

from enum import Enum

import msgspec

from shared.objects import compare_resource_versions


class Order(Enum):
    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


class Freshness(msgspec.Struct, frozen=True):
    """How new a state of one uid is.

    `epoch`: resourceVersions compare within one only (an etcd restored from a backup numbers again).
    `deleted`: the object is gone, or goes: neither a deletionTimestamp nor a deletion is ever taken back, so this is
    final within the epoch, whatever the resourceVersion says (a deletion that was found by comparison of a list with
    the inventory has no resourceVersion of its own).
    """

    epoch: int
    resource_version: str
    deleted: bool = False


def compare(state: Freshness, other: Freshness) -> Order:
    """Return how `state` stands to `other`, both of one uid."""
    if state.epoch != other.epoch:
        return Order.NEWER if state.epoch > other.epoch else Order.OLDER
    if state.deleted != other.deleted:
        return Order.NEWER if state.deleted else Order.OLDER
    match compare_resource_versions(state.resource_version, other.resource_version):
        case 0:
            return Order.SAME
        case 1:
            return Order.NEWER
        case _:
            return Order.OLDER
