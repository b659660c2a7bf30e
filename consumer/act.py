"""Carry out what `plan` decided, one action after the other; nothing is decided here that a pure function could decide.

Guarantees: the ownership of the object's shard is checked right before every effect. A crash between any two actions is
only a pause: the message is not acknowledged, and the plan of the next try begins where this one ended.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, assert_never

import msgspec

from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord, Warn
from consumer.environments import Environments
from consumer.observation import Observation, observe_live
from consumer.plan import PlanSettings, write_back
from consumer.ports import Kubernetes, Registry
from consumer.writeback import WriteCost, patch_operations
from shared.errors import ConflictError, NotFoundError, TransientError
from shared.objects import ObjectKey

logger = logging.getLogger(__name__)

PATCH_TRIES: Final = 3  # in the noisy first second of an object KServe writes faster than we read

Fence = Callable[[ObjectKey], None]  # raises TransientError when the object's shard is no longer ours


class Outcome(msgspec.Struct):
    """What was done. `rejections` are the reasons for the dead letters; `deferred`: the id could not be written yet."""

    record_id: str | None = None
    created: bool = False
    updated: int = 0
    patched: bool = False
    deferred: bool = False
    rejections: tuple[str, ...] = ()

    @property
    def wrote(self) -> bool:
        """Whether the registry was changed."""
        return self.created or self.updated > 0


class Actor:
    """Performs actions on one registry and one cluster."""

    def __init__(
        self,
        registry: Registry,
        kubernetes: Kubernetes,
        settings: PlanSettings,
        fence: Fence,
        on_write_back: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._kubernetes = kubernetes
        self._settings = settings
        self._fence = fence
        self._on_write_back = on_write_back  # told of each: patched, deferred, gone
        self.environments = Environments(registry)

    async def perform(self, actions: Sequence[Action], seen: Observation) -> Outcome:
        """Carry out the actions in order; return what was done. Raises the errors of the adapters."""
        outcome = Outcome()
        for action in actions:
            logger.info("decided", extra={"object": str(seen.key), "action": _name(action), "reason": action.reason})
            match action:
                case CreateRecord():
                    outcome.record_id = await self._create(action, seen)
                    outcome.created = True
                case UpdateRecord():
                    self._fence(seen.key)
                    await self._registry.update_record(action)
                    outcome.updated += 1
                case PatchObject():
                    record_id = action.record_id or outcome.record_id
                    assert record_id is not None, "a patch without a record follows the creation of one"
                    await self.patch(action, record_id, seen, outcome)
                case DeferPatch():
                    self._defer(outcome)
                case Warn():
                    logger.warning(action.reason, extra={"object": str(seen.key)})
                case Reject():
                    outcome.rejections += (action.reason,)
                case _:
                    assert_never(action)
        return outcome

    async def patch(self, action: PatchObject, record_id: str, seen: Observation, outcome: Outcome) -> None:
        """Write the id; when the object moved on meanwhile, look at it, judge again, and give up after three times."""
        obj = seen.obj
        decision: PatchObject | DeferPatch = action
        for _ in range(PATCH_TRIES):
            if isinstance(decision, DeferPatch):
                break
            tested = None if decision.cost is WriteCost.FREE else decision.resource_version
            self._fence(seen.key)
            try:
                operations = patch_operations(obj, self._settings.target, record_id, test_resource_version=tested)
                await self._kubernetes.patch(seen.key, operations)
            except ConflictError:
                live = await self.live(seen)
                if live is None:
                    self._on_write_back("gone")
                    return  # or another object by now: its own event says so
                obj = live.obj
                following = write_back(live, record_id, self._settings)
                if not following:
                    return  # somebody, perhaps our own lost request, has written it
                decision = following[0]
            else:
                outcome.patched = True
                self._on_write_back("patched")
                return
        self._defer(outcome)

    def _defer(self, outcome: Outcome) -> None:
        outcome.deferred = True
        self._on_write_back("deferred")

    async def live(self, seen: Observation) -> Observation | None:
        """Return the object as it stands now, or None when that uid is gone."""
        raw = await self._kubernetes.get(seen.key)
        if raw is None or raw.get("metadata", {}).get("uid") != seen.uid:
            return None
        return observe_live(seen, raw, self._settings.prefix)

    async def _create(self, action: CreateRecord, seen: Observation) -> str:
        self._fence(seen.key)
        environment_id = await self.environments.get_or_create(action.environment)
        self._fence(seen.key)
        try:
            record = await self._registry.create_record(action, environment_id)
        except NotFoundError as error:
            # Said also when the registry's database is away: forget the id, and let the next try find out.
            self.environments.forget(action.environment)
            raise TransientError(f"the registry does not find serving environment {action.environment!r}") from error
        return record.id


def _name(action: Action) -> str:
    return type(action).__name__
