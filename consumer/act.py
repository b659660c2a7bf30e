"""Carry out what `plan` decided, one action after the other; nothing is decided here that a pure function could decide.

Guarantees: the ownership of the object's shard is checked right before every effect. A crash between any two actions is
only a pause: the message is not acknowledged, and the plan of the next try begins where this one ended.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from typing import Final, assert_never

import msgspec

from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord, Warn
from consumer.environments import Place
from consumer.notices import (
    About,
    Notice,
    other_records_id,
    registered,
    write_back_deferred,
    write_back_limited,
)
from consumer.observation import Observation, observe_live
from consumer.plan import PlanSettings, write_back
from consumer.ports import Kubernetes
from consumer.ratelimit import RateLimit
from consumer.writeback import never_reaches_pods, patch_operations
from shared.errors import ConflictError, NotFoundError, TransientError
from shared.objects import ObjectKey

logger = logging.getLogger(__name__)

PATCH_TRIES: Final = 3  # in the noisy first second of an object KServe writes faster than we read

WRITES_MAX: Final = 3  # of the id to one object, in so many seconds: what needs more is a fight with another tool
WRITES_PER_S: Final = 60.0

Fence = Callable[[ObjectKey], None]  # raises TransientError when the object's shard is no longer ours


class Outcome(msgspec.Struct):
    """What was done. `rejections` are the reasons for the dead letters; `deferred`: the id could not be written yet.

    `failure`: why the id, which comes last, could not be written: what was to be done to records is done.
    """

    record_id: str | None = None
    created: bool = False
    updated: int = 0
    patched: bool = False
    deferred: bool = False
    failure: TransientError | None = None
    rejections: tuple[str, ...] = ()

    @property
    def wrote(self) -> bool:
        """Whether the registry was changed."""
        return self.created or self.updated > 0


Tell = Callable[[About, Notice], None]
"""Tells an object's owner something. It must return at once and not raise."""


def tell_nobody(_about: About, _notice: Notice) -> None:
    """Keep it to yourself."""


class Actor:
    """Performs actions on one cluster, and on whichever registry is named."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        settings: PlanSettings,
        fence: Fence,
        on_write_back: Callable[[str], None],
        tell: Tell = tell_nobody,
    ) -> None:
        self._kubernetes = kubernetes
        self._settings = settings
        self._fence = fence
        self._on_write_back = on_write_back  # told of each: patched, deferred, limited, gone
        self._tell = tell
        self._writes = RateLimit(WRITES_MAX, WRITES_PER_S)

    def use(self, settings: PlanSettings) -> None:
        """Decide by these settings from now on."""
        self._settings = settings

    async def perform(
        self, actions: Sequence[Action], seen: Observation, place: Place | None, own: Container[str] = ()
    ) -> Outcome:
        """Carry out the actions in order; return what was done. Raises the errors of the adapters, but the patch's.

        `place` is where records are written; None where no action can concern one. `own`: the ids of the object's
        records, former ones included: that it carries one of them is no news to its owner.
        """
        outcome = Outcome()
        for action in actions:
            logger.info("decided", extra={"object": str(seen.key), "action": _name(action), "reason": action.reason})
            match action:
                case CreateRecord():
                    assert place is not None, "a record is in some registry"
                    outcome.record_id = await self._create(action, seen, place)
                    outcome.created = True
                    self._tell_created(action, outcome.record_id, seen, place)
                case UpdateRecord():
                    assert place is not None, "a record is in some registry"
                    self._fence(seen.key)
                    await place.registry.update_record(action)
                    outcome.updated += 1
                case PatchObject():
                    record_id = action.record_id or outcome.record_id
                    assert record_id is not None, "a patch without a record follows the creation of one"
                    self._tell_other_id(seen, own)
                    try:
                        await self.patch(action, record_id, seen, outcome)
                    except TransientError as error:
                        outcome.failure = error
                case DeferPatch():
                    self._tell_other_id(seen, own)
                    self._tell_deferred(action, action.record_id or outcome.record_id, seen)
                    self._defer(outcome)
                case Warn():
                    logger.warning(action.reason, extra={"object": str(seen.key)})
                    self._tell(seen.about, Notice(action.topic, action.reason))
                case Reject():
                    outcome.rejections += (action.reason,)
                case _:
                    assert_never(action)
        return outcome

    def wait_s(self, uid: str) -> float:
        """Return in how many seconds the id may be written to an object again; 0.0: now."""
        return self._writes.wait_s(uid, _now())

    async def patch(self, action: PatchObject, record_id: str, seen: Observation, outcome: Outcome) -> None:
        """Write the id; when the object moved on meanwhile, look at it, judge again, and give up after three times."""
        obj, target = seen.obj, self._settings.target
        decision: PatchObject | DeferPatch = action
        if self.wait_s(seen.uid) > 0:
            self._limit(seen, outcome)
            return
        for _ in range(PATCH_TRIES):
            if isinstance(decision, DeferPatch):
                self._tell_deferred(decision, record_id, seen)
                break
            tested = None if never_reaches_pods(obj, target) else decision.resource_version
            self._fence(seen.key)
            try:
                operations = patch_operations(obj, target, record_id, test_resource_version=tested)
                await self._kubernetes.patch(seen.key, operations)
            except ConflictError:
                live = await self.live(seen)
                if live is None:
                    self._on_write_back("gone")
                    return  # or another object by now: its own event says so
                obj = live.obj
                following = write_back(live, record_id, self._settings)
                if not following:
                    outcome.patched = live.lives  # by somebody, perhaps our own lost request: its removal is news
                    return
                decision = following[0]
            else:
                outcome.patched = True
                self._writes.spend(seen.uid, _now())
                self._on_write_back("patched")
                return
        self._defer(outcome)

    def _defer(self, outcome: Outcome) -> None:
        outcome.deferred = True
        self._on_write_back("deferred")

    def _limit(self, seen: Observation, outcome: Outcome) -> None:
        """Leave the id for later: it was written often enough, and somebody removes it each time."""
        outcome.deferred = True
        wait_s = self.wait_s(seen.uid)
        logger.warning("write-back limited", extra={"object": str(seen.key), "due_in_s": round(wait_s, 1)})
        self._on_write_back("limited")
        self._tell(seen.about, write_back_limited(self._settings.target.key, WRITES_MAX, WRITES_PER_S))

    def _tell_created(self, action: CreateRecord, record_id: str, seen: Observation, place: Place) -> None:
        if seen.lives:
            self._tell(seen.about, registered(record_id, action.model_id, place.name))

    def _tell_other_id(self, seen: Observation, own: Container[str]) -> None:
        value = self._settings.target.value_on(seen.obj)
        if value is not None and value not in own:
            self._tell(seen.about, other_records_id(self._settings.target.key, value))

    def _tell_deferred(self, action: DeferPatch, record_id: str | None, seen: Observation) -> None:
        self._tell(seen.about, write_back_deferred(self._settings.target.key, record_id, action.cost))

    async def live(self, seen: Observation) -> Observation | None:
        """Return the object as it stands now, or None when that uid is gone."""
        raw = await self._kubernetes.get(seen.key)
        if raw is None or raw.get("metadata", {}).get("uid") != seen.uid:
            return None
        return observe_live(seen, raw, self._settings.prefix)

    async def _create(self, action: CreateRecord, seen: Observation, place: Place) -> str:
        self._fence(seen.key)
        environment_id = await place.environments.get_or_create(action.environment)
        self._fence(seen.key)
        try:
            record = await place.registry.create_record(action, environment_id)
        except NotFoundError as error:
            # Said also when the registry's database is away: forget the id, and let the next try find out.
            place.environments.forget(action.environment)
            raise TransientError(f"the registry does not find serving environment {action.environment!r}") from error
        return record.id


def _name(action: Action) -> str:
    return type(action).__name__


def _now() -> float:
    return asyncio.get_running_loop().time()
