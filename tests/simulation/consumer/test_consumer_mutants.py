"""A simulation that finds nothing proves nothing: without each of these rules of the consumer it must fail.

Each mutant takes one rule out, or puts one back that earlier controllers had; the simulation has 1,000 histories to
kill it.
"""

import pytest
from msgspec.structs import replace

from consumer import act, freshness, handle, plan, reconcile, retelling
from consumer.delivery import workqueue
from consumer.delivery.work import Work
from consumer.handle import Handler
from consumer.reconcile import Reconciler
from consumer.registry import ModelRegistry
from consumer.retelling import Retold
from consumer.verdict import Ack
from shared.errors import TransientError
from shared.events import MESSAGE_ID
from tests.simulation.consumer.history import SIMULATION

HISTORIES_MAX = 1000


def with_a_seen_set(patch):
    """What was seen before is dropped, whoever saw it and however that ended: a shared set, as a key-value store."""
    real = Handler.handle

    async def handle_once(self, work):
        process = self._sources.live.__self__._kubernetes.process
        seen = process.world.__dict__.setdefault("seen_set", set())
        name = work.message.headers.get(MESSAGE_ID)
        if name is not None and work.attempt == 1:
            if name in seen:
                await work.message.ack()
                return Ack()
            seen.add(name)
        return await real(self, work)

    patch.setattr(Handler, "handle", handle_once)


def with_a_create_after_a_failed_find(patch):
    for name in ("find_environment", "find_record", "find_record_by_name"):
        patch.setattr(ModelRegistry, name, _believing_faults(getattr(ModelRegistry, name)))


def _believing_faults(find):
    async def found(self, *args):
        try:
            return await find(self, *args)
        except TransientError:
            return None

    return found


def with_an_ack_before_the_effect(patch):
    real = Handler.handle

    async def ack_first(self, work):
        if work.attempt == 1:
            await work.message.ack()
        return await real(self, work)

    patch.setattr(Handler, "handle", ack_first)


def with_one_slot_for_all_uids_of_a_name(patch):
    patch.setattr(Work, "uid", property(lambda self: "" if self.seen is None else str(self.key)))


def without_deleted_in_freshness(patch):
    def compare(state, other):
        return real(replace(state, deleted=False), replace(other, deleted=False))

    real = freshness.compare
    for module in (plan, reconcile, retelling, workqueue):
        patch.setattr(module, "compare", compare)


def with_memory_before_the_effect(patch):
    real = Reconciler.reconcile

    async def remember_first(self, seen, how):
        known = self.memory.get(seen.uid)
        try:
            return await real(self, seen, how)
        except TransientError:
            if known is not None and not how.is_look:
                fields = {"inputs": reconcile.inputs_of(seen, self._settings), "digest": seen.digest}
                self.memory.put(seen.uid, replace(known, freshness=seen.freshness, **fields))
            raise

    patch.setattr(Reconciler, "reconcile", remember_first)


def without_the_records_of_former_models(patch):
    real = Reconciler._read

    async def read(self, seen, *rest):
        model = reconcile.want(seen, self._settings.prefix).model
        return await real(self, replace(seen, models=(model,) if model else ()), *rest)

    patch.setattr(Reconciler, "_read", read)


def without_the_uid_in_the_patch(patch):
    real = act.patch_operations

    def operations(*args, **kwargs):
        return [each for each in real(*args, **kwargs) if each["path"] != "/metadata/uid"]

    patch.setattr(act, "patch_operations", operations)


def with_looks_that_record_what_no_event_has_told(patch):
    def as_it_stands(last, live, _prefix):
        return Retold(live or replace(last, freshness=replace(last.freshness, deleted=True)), moved_on=False)

    patch.setattr(handle, "retold", as_it_stands)


def with_looks_that_come_before_their_turn(patch):
    patch.setattr(Reconciler, "has_handled", lambda *_: True)


MUTANTS = [
    with_a_seen_set,
    with_a_create_after_a_failed_find,
    with_an_ack_before_the_effect,
    with_one_slot_for_all_uids_of_a_name,
    without_deleted_in_freshness,
    with_memory_before_the_effect,
    without_the_records_of_former_models,
    without_the_uid_in_the_patch,
    with_looks_that_record_what_no_event_has_told,
    with_looks_that_come_before_their_turn,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_simulation_kills_a_consumer(mutant, monkeypatch, record_property):
    mutant(monkeypatch)
    killed_by = SIMULATION.first_failing(0, HISTORIES_MAX)
    assert killed_by is not None
    record_property("figures", f"died after {killed_by + 1} histories")
