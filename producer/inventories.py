"""Reading the inventory at the start of each pass, together: the epoch is that of the cluster, and is in all of them.

Also here: the objects of namespaces that NAMESPACES no longer names. No list speaks of them any more.
"""

import asyncio
import logging
import time

from producer.changes import Entry, tombstone
from producer.items import Watched
from producer.ledger import Holdings, Ledger
from producer.outbox import Outbox
from producer.passes import Epoch
from producer.selection import Selection
from shared.objects import Kind, ObjectKey

logger = logging.getLogger(__name__)


class Inventories:
    """Reads what the broker holds of the cluster `cluster_id`, by the lists of `watched`."""

    def __init__(self, ledger: Ledger, cluster_id: str, watched: tuple[Watched, ...], epoch: Epoch) -> None:
        self._ledger = ledger
        self._cluster_id = cluster_id
        self._epoch = epoch
        self._namespaces = {each.namespace for each in watched}
        self._unread = {each.kind for each in watched}
        self._outside: dict[ObjectKey, Entry] = {}
        self._reading = asyncio.Lock()
        self._all_read = asyncio.Event()

    async def load(self, watched: Watched) -> Holdings:
        """Read one; the first time, wait until all kinds were read whole."""
        if watched.namespace:
            async with self._reading:  # the first of a kind that is listed by namespaces reads it whole, for the epoch
                if watched.kind in self._unread:
                    await self._read(Watched(watched.kind))
        holdings = await self._read(watched)
        await self._all_read.wait()
        if not self._epoch.value:
            self._epoch.begin(int(time.time()))
        return holdings

    async def outside(self) -> dict[ObjectKey, Entry]:
        """Return the objects that were alive, when this began, in namespaces that no list covers."""
        await self._all_read.wait()
        return self._outside

    async def _read(self, watched: Watched) -> Holdings:
        holdings = await self._ledger.holdings(watched.kind, self._cluster_id, watched.namespace)
        self._epoch.known(holdings.epoch)
        if watched.kind in self._unread and not watched.namespace:
            self._unread.discard(watched.kind)
            if "" not in self._namespaces:
                for key, entry in holdings.entries.items():
                    if key.namespace not in self._namespaces and not entry.deleted:
                        self._outside[key] = entry
            if not self._unread:
                self._all_read.set()
        return holdings


class Leftovers:
    """What was recorded of namespaces that are no longer in the setting: kept, but for namespaces that are gone."""

    def __init__(self, inventories: Inventories, selection: Selection, outbox: Outbox, epoch: Epoch) -> None:
        self._inventories = inventories
        self._selection = selection
        self._outbox = outbox
        self._epoch = epoch
        self._counts: dict[Kind, int] = {}

    def count(self, kind: Kind) -> int:
        """Return how many objects of a kind there are."""
        return self._counts.get(kind, 0)

    async def look(self) -> None:
        """Publish the deletes of objects whose namespace does not exist any more, and count the others."""
        entries = await self._inventories.outside()
        if not entries:
            return
        verified = await self._selection.verified({key: entry.uid for key, entry in entries.items()}, frozenset())
        for key in [key for key in entries if key.namespace in verified.vanished]:
            entry = entries.pop(key)
            # No list proves this absence: the entry's own version, at which a delete is newer than anything else.
            change = tombstone(key, entry, entry.resource_version, self._epoch.value)
            await self._outbox.publish(change, lambda _: None)
        self._counts = {kind: sum(key.kind == kind for key in entries) for kind in Kind}
        if entries:
            fields = {"count": len(entries), "namespaces": sorted({key.namespace for key in entries})[:20]}
            logger.warning(
                "objects of namespaces that are no longer selected stay as they were last seen", extra=fields
            )
