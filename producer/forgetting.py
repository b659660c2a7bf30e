"""Old tombstones leave the stream, so that it does not grow with every object that ever lived.

    Inventory.tombstones ──► due ──► Forgetter ──► STREAM.PURGE of its subjects (look, evt) ──► Inventory.forget

Guarantees: a purge ends at the tombstone, so whatever is said about a name later stays (it may have been taken again in
the meantime); nothing is purged that the consumers have not taken, which the floor of the shard's durable tells.
"""

import time
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

from producer.changes import Entry
from producer.inventory import Inventory
from producer.ledger import Ledger
from shared.objects import ObjectKey

FORGET_AFTER_S: Final = 7 * 24 * 3600

Tombstone = tuple[ObjectKey, Entry]


class Forgotten(Struct, frozen=True):
    """`count` tombstones were purged, `kept` are old enough but wait for a consumer to take them."""

    count: int = 0
    kept: int = 0


def due(tombstones: Iterable[Tombstone], now_s: float, after_s: float = FORGET_AFTER_S) -> list[Tombstone]:
    """Return the tombstones of deletes that were seen at least `after_s` seconds ago. Pure."""
    return [one for one in tombstones if one[1].sequence > 0 and one[1].deleted_at + after_s <= now_s]


class Forgetter:
    """Purges old tombstones, while `permitted` says that we lead. `now` is the wall clock."""

    def __init__(
        self,
        ledger: Ledger,
        permitted: Callable[[], bool],
        *,
        after_s: float = FORGET_AFTER_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._permitted = permitted
        self._after_s = after_s
        self._now = now

    async def forget(self, inventory: Inventory) -> Forgotten:
        """Purge what is due, and drop it from the inventory. Ends early when we lead no more.

        Raises UnreachableError, PermanentError: what was purged until then is forgotten, the rest is due again.
        """
        count = kept = 0
        tombstones = sorted(due(inventory.tombstones(), self._now(), self._after_s), key=self._shard)
        for shard, group in groupby(tombstones, self._shard):
            taken = await self._ledger.taken(shard)
            consumed, waiting = _divided(group, taken)
            kept += len(waiting)
            for key, entry in consumed:
                if not self._permitted():
                    return Forgotten(count, kept)
                await self._ledger.purge(key, entry.sequence)
                inventory.forget(key, entry)
                count += 1
        return Forgotten(count, kept)

    def _shard(self, tombstone: Tombstone) -> int:
        return self._ledger.shard(tombstone[0])


def _divided(tombstones: Iterable[Tombstone], taken: int) -> tuple[list[Tombstone], list[Tombstone]]:
    """Return those that consumers have taken, and those that they have not."""
    every = list(tombstones)
    return [one for one in every if one[1].sequence <= taken], [one for one in every if one[1].sequence > taken]
