"""The sweep: now and then the owner of shard 0 compares everything, and asks the owners to look at what differs.

It heals what no event will: an UNDEPLOYED that was lost, a record edited by hand, a registry put back to a backup,
objects deleted while the broker's storage was lost, write-backs that waited. `survey.py` reads, `compare.py` decides.

Guarantees: nothing is written here but looks. A look is a question: the object's owner GETs it, reads its records and
plans, so a difference that is none, or that somebody has mended meanwhile, costs reads.
Assumptions: the owner of shard 0 is one process at a time; should two sweep at once, objects are looked at twice.
Caveats: a hold, and what a person has released, live in this process; its successor holds the same again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from consumer.looks import RecordRef
from consumer.sweep.compare import Difference, Triage, Uids, triage
from consumer.sweep.survey import Survey
from shared.errors import IsvcSyncError
from shared.holds import Held, HoldServer
from shared.objects import Kind, ObjectKey

logger = logging.getLogger(__name__)

FIRST_AFTER_S: Final = 30.0  # of ownership: what the former owner had at hand is done, and a rollout is over
AGAIN_AFTER_S: Final = 30.0  # when a sweep has failed
TICK_S: Final = 1.0  # how soon it is seen that shard 0 is ours, or no longer
_TOO_MANY: Final = "too many records would be undeployed at once"
_NAMED_MAX: Final = 20


class Looks(Protocol):
    """Where looks go."""

    async def look(self, key: ObjectKey, refs: Sequence[RecordRef]) -> None:
        """Ask for a look. Returns when the broker has it. Raises TransientError and PermanentError."""


class Hooks(msgspec.Struct, frozen=True):
    """What the shell lends.

    `owns`: whether the sweep is ours at this moment. `refresh`: reads anew what each process keeps of the cluster (the
    lists of keys in KServe's configuration); it must not raise. `on_swept`: told of each sweep, None when it is no
    longer ours.
    """

    owns: Callable[[], bool]
    refresh: Callable[[], Awaitable[None]]
    on_swept: Callable[[Survey | None, Triage | None], None]


class Keeper:
    """What the sweep keeps back until a person releases it. `now` is the wall clock."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._held: dict[Kind, Held] = {}
        self._approved: Uids = frozenset()
        self.released = asyncio.Event()

    @property
    def approved(self) -> Uids:
        return self._approved

    def register(self, server: HoldServer) -> None:
        server.register("sweep", self.held, self.release)

    def held(self) -> list[Held]:
        return list(self._held.values())

    def release(self, held: Held) -> bool:
        """Let the next sweep, which begins at once, undeploy exactly this."""
        if self._held.get(held.kind) != held:
            return False
        self._approved |= held.objects
        del self._held[held.kind]
        self.released.set()
        return True

    def keep(self, survey: Survey, found: Triage) -> None:
        """Take over what a sweep has found; what was approved stays so until it is done."""
        self._approved &= frozenset((each.key, each.uid) for each in survey.differences)
        before, self._held = self._held, {}
        for kind in Kind:
            if objects := found.held_of(kind):
                known = survey.deployed.get(kind, 0)
                held = Held(kind=kind, why=_TOO_MANY, objects=objects, known=known, since_s=self._now())
                self._held[kind] = held.continued(before.get(kind))

    def forget(self) -> None:
        """End the term."""
        self._held = {}
        self._approved = frozenset()
        self.released.clear()


class Sweeper:
    """Sweeps while the sweep is ours. `server` answers for the holds meanwhile."""

    def __init__(
        self, survey: Callable[[], Awaitable[Survey]], looks: Looks, server: HoldServer, hooks: Hooks, interval_s: float
    ) -> None:
        self._survey = survey
        self._looks = looks
        self._server = server
        self._hooks = hooks
        self._interval_s = interval_s
        self._keeper = Keeper()
        self._keeper.register(server)
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Sweep until cancelled."""
        refresh_at = self._clock() + self._interval_s
        while True:
            if self._hooks.owns():
                async with self._server:
                    await self._term()
                self._keeper.forget()
                self._hooks.on_swept(None, None)
            elif self._clock() >= refresh_at:
                await self._hooks.refresh()
                refresh_at = self._clock() + self._interval_s
            await asyncio.sleep(TICK_S)

    async def _term(self) -> None:
        """Sweep until the sweep is no longer ours."""
        next_at = self._clock() + min(FIRST_AFTER_S, self._interval_s)
        while self._hooks.owns():
            if self._clock() >= next_at or self._keeper.released.is_set():
                self._keeper.released.clear()
                await self._hooks.refresh()
                done = await self._sweep()
                next_at = self._clock() + (self._interval_s if done else min(AGAIN_AFTER_S, self._interval_s))
            try:
                async with asyncio.timeout(TICK_S):
                    await self._keeper.released.wait()
            except TimeoutError:
                continue

    async def _sweep(self) -> bool:
        """Sweep once; return whether everything was compared and all looks were asked for."""
        began_at = self._clock()
        try:
            survey = await self._survey()
            found = triage(survey.differences, survey.deployed, self._keeper.approved)
            self._keeper.keep(survey, found)
            asked = await self._ask(found.looks)
        except IsvcSyncError as error:
            logger.warning("the sweep was broken off", extra={"reason": str(error)})
            return False
        self._hooks.on_swept(survey, found)
        _tell(survey, found, asked, self._clock() - began_at)
        return asked == len(found.looks) and not any(each.error for each in survey.registries)

    async def _ask(self, differences: Sequence[Difference]) -> int:
        """Ask for looks, as long as the sweep is ours; return for how many."""
        for count, each in enumerate(differences):
            if not self._hooks.owns():
                return count
            logger.info("differs", extra={"object": str(each.key), "uid": each.uid, "reason": each.reason})
            await self._looks.look(each.key, each.refs)
        return len(differences)


def _tell(survey: Survey, found: Triage, asked: int, seconds: float) -> None:
    fields = {
        "records": sum(each.ours for each in survey.registries),
        "objects": survey.objects,
        "skipped": survey.skipped,
        "looks": asked,
        "held": len(found.held),
        "waiting": len(found.waiting),
        "seconds": round(seconds, 2),
    }
    logger.info("swept", extra=fields)
    if found.held:
        names = sorted(str(each.key) for each in found.held)
        logger.error(
            "undeployments are held, a person must release them (isvc-sync release)",
            extra={"count": len(names), "objects": names[:_NAMED_MAX]},
        )
    if found.waiting:
        logger.warning(
            "undeployments wait until the producer has compared everything", extra={"count": len(found.waiting)}
        )
