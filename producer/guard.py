"""Which deletes of a pass must wait, and for whom: a second list that agrees, or a person. Pure.

`producer/inventory.py` asks it before it believes that objects are gone. Nothing is held because of a delete that was
seen; only absence is doubted.
"""

from typing import Final

from shared.objects import ObjectKey

GUARD_MIN: Final = 5
GUARD_SHARE: Final = 5  # one in five

Uids = frozenset[tuple[ObjectKey, str]]


class Guard:
    """The deletes that are held, and those of them that a person has approved."""

    def __init__(self) -> None:
        self._doubted: Uids = frozenset()  # absent from the last complete list
        self._without_kind: Uids = frozenset()  # no list exists, so no second one can agree
        self._approved: Uids = frozenset()

    @property
    def held(self) -> Uids:
        return self._doubted | self._without_kind

    def holds(self, key: ObjectKey, uid: str) -> bool:
        return (key, uid) in self._doubted or (key, uid) in self._without_kind

    def approve(self, uids: Uids) -> Uids:
        """Note what a person has released; return what of it is held. The rest is not: it may live, or live again."""
        accepted = uids & self.held
        self._approved |= accepted
        return accepted

    def judge(self, gone: Uids, *, known: int, remaining: int) -> Uids:
        """Return which deletes of a complete pass are held. Whatever was approved has had its pass then."""
        approved, self._approved = self._approved & gone, frozenset()
        self._without_kind = frozenset()
        known -= len(approved)
        self._doubted = held_back(gone - approved, self._doubted, known=known, remaining=remaining)
        return self._doubted

    def kind_absent(self, living: Uids) -> Uids:
        """Return which deletes are held while the kind itself is absent: all that nobody approved."""
        approved, self._approved = self._approved, frozenset()
        self._without_kind = living - approved
        self._doubted &= living - approved
        return self._without_kind


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
