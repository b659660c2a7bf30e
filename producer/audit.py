"""Does the watch miss anything? A list beside it, compared with the inventory, without interrupting it.

    list pages ──► Audit.page (suspects) ──► the watch reaches the list's resourceVersion ──► Audit.conclude ──► Missed

While the list is read, the watch may be behind it or ahead of it, so a difference is only a suspicion. When the watch
has passed the list's resourceVersion, the inventory must know all that the list shows: what it still does not know then
was missed for certain. A watch that does not get there is stuck, however lively it looks, and what it has not told by
then is missed, too. An audit publishes nothing: whoever called it begins a new pass, which does.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from producer.changes import Entry
from producer.entries import key_of
from producer.inventory import Inventory
from producer.items import Item, Observed, Page, Unidentified
from shared.events import EventType
from shared.objects import ObjectKey, compare_resource_versions

logger = logging.getLogger(__name__)

REACH_S: Final = 150.0  # bookmarks come every minute: two may be missing
SAMPLES: Final = 10
_VOID: Final = "a new pass began meanwhile"


class Missed(Struct, frozen=True):
    """What the watch has missed: how many changes of each type, and some of their objects, for a person.

    `restored`: the list is older than the watch, so etcd was put back, and nothing can be compared. `stuck`: the watch
    has not come to the list, although nothing but the server has kept it from that.
    """

    created: int = 0
    updated: int = 0
    deleted: int = 0
    samples: tuple[ObjectKey, ...] = ()
    restored: bool = False
    stuck: bool = False

    @property
    def counts(self) -> dict[EventType, int]:
        return {
            EventType.CREATED: self.created,
            EventType.UPDATED: self.updated,
            EventType.DELETED: self.deleted,
        }

    def __bool__(self) -> bool:
        return self.restored or self.stuck or any(self.counts.values())


class _Listed(Struct, frozen=True, gc=False):
    """What is remembered of a listed object that the inventory did not know."""

    uid: str
    digest: str


class Audit:
    """The comparison. Pure; holds pointers to the inventory's own keys, and what is suspicious."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._basis = inventory.basis
        self._unlisted = inventory.names()
        self._suspects: dict[ObjectKey, _Listed] = {}
        self._doubtful = False

    def page(self, items: Iterable[Observed | Unidentified], version: str) -> None:
        """Compare a page of the list of that resourceVersion.

        An object that cannot be identified might be any, so no delete is concluded then.
        """
        for found in items:
            if isinstance(found, Unidentified):
                self._doubtful = True
            elif self._inventory.covers(found.key):
                self._unlisted.discard(str(found.key))
                listed = _Listed(found.uid, found.digest)
                if _unknown(self._inventory.entries.get(found.key), listed, version) is not None:
                    self._suspects[found.key] = listed

    @property
    def void(self) -> bool:
        """Whether the inventory was read anew or compared meanwhile: a pass has found what an audit could."""
        return self._inventory.in_pass or self._inventory.basis != self._basis

    def absent(self, version: str) -> dict[ObjectKey, Entry]:
        """Return what should be in a complete list of that resourceVersion, and is not."""
        if self._doubtful:
            return {}
        entries = self._inventory.entries
        suspects = {key: entries[key] for key in map(key_of, self._unlisted) if self._inventory.expects(key)}
        return {key: entry for key, entry in suspects.items() if not older(version, entry.resource_version)}

    def conclude(self, version: str, gone: Container[ObjectKey]) -> Missed:
        """Return what was missed, when the watch has passed `version`. `gone` of those that `absent` told are gone."""
        entries = self._inventory.entries
        types = {key: _unknown(entries.get(key), listed, version) for key, listed in self._suspects.items()}
        types |= {key: EventType.DELETED for key in self.absent(version) if key in gone}  # the watch has gone on since
        missed = {key: what for key, what in types.items() if what is not None}
        counts = Counter(missed.values())
        return Missed(
            created=counts[EventType.CREATED],
            updated=counts[EventType.UPDATED],
            deleted=counts[EventType.DELETED],
            samples=tuple(sorted(missed)[:SAMPLES]),
        )


Confirm = Callable[[Mapping[ObjectKey, Entry]], Awaitable[Iterable[ObjectKey]]]


class Followed(Protocol):
    """The watch that is audited."""

    @property
    def position(self) -> str:
        """Up to where the inventory has been told everything, acknowledged or not; empty before the first pass."""

    async def reached(self, version: str) -> None:
        """Return when it has come to that resourceVersion."""

    def listening_s(self) -> float:
        """Return for how long nothing but the server has kept it from going on."""


async def run_audit(
    page: Callable[[str], Awaitable[Item]],
    inventory: Inventory,
    watch: Followed,
    confirm: Confirm | None = None,
) -> Missed | None:
    """List beside the watch, and return what it has missed; None when nothing can be concluded (the log says why).

    `page` reads one page of a consistent list. `confirm` returns which of the absent ones are gone: needed where a list
    shows a selection only.
    """
    audit, began_at = Audit(inventory), watch.position
    version = await listed(audit, page)
    if not version:
        return None
    if older(version, began_at):
        return Missed(restored=True)
    stuck = not await _reached(watch, version)
    if stuck and watch.listening_s() < REACH_S:
        _without_conclusion(f"the watch was held up, and did not reach the list within {REACH_S:.0f} s")
        return None
    suspects = audit.absent(version)
    gone = suspects.keys() if confirm is None or not suspects else set(await confirm(suspects))
    if audit.void:
        _without_conclusion(_VOID)
        return None
    return replace(audit.conclude(version, gone), stuck=stuck)


async def listed(audit: Audit, page: Callable[[str], Awaitable[Item]]) -> str:
    """Read a complete list into the audit and return its resourceVersion; empty when it cannot be believed."""
    token = version = ""
    followed: set[str] = set()
    while True:
        item = await page(token)
        if audit.void:
            return _without_conclusion(_VOID)
        if not isinstance(item, Page):
            return _without_conclusion(f"the list failed: {type(item).__name__}")
        if item.resource_version != version and version:
            return _without_conclusion("pages of one list differ in resourceVersion")
        audit.page(item.items, item.resource_version)
        token, version = item.token, item.resource_version
        if not token:
            return version
        if token in followed:
            return _without_conclusion("a list goes round in a circle: a continue token came twice")
        followed.add(token)


async def _reached(watch: Followed, version: str) -> bool:
    """Wait until the watch has passed a resourceVersion; say whether it did."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REACH_S):
            await watch.reached(version)
            return True
    return False


def older(version: str, other: str) -> bool:
    """Whether a resourceVersion is older than another one; nothing is older than none (an empty text)."""
    return bool(other) and (not version or compare_resource_versions(version, other) < 0)


def _without_conclusion(why: str) -> str:
    """Log why, and return an empty resourceVersion."""
    logger.info("an audit of the watch ends without conclusion", extra={"why": why})
    return ""


def _unknown(entry: Entry | None, listed: _Listed, version: str) -> EventType | None:
    """Return which event about an object in a list of that resourceVersion the inventory does not know."""
    if entry is None:
        return EventType.CREATED
    if older(version, entry.resource_version):
        return None  # it knows something newer
    if entry.uid != listed.uid or entry.deleted:
        return EventType.CREATED
    if entry.digest.partition(":")[0] != listed.digest.partition(":")[0]:
        return None  # made by two versions of the digest
    return EventType.UPDATED if entry.digest != listed.digest else None
