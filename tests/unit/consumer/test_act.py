"""Carrying out a plan on a registry and a cluster that keep what they are told, and that fail on demand."""

import asyncio

import pytest
from msgspec.structs import replace

from consumer.act import PATCH_TRIES, WRITES_MAX, WRITES_PER_S, Actor
from consumer.actions import DeferPatch, PatchObject, Reject, Warn
from consumer.environments import Environments, Place
from consumer.notices import Topic
from consumer.plan import plan
from consumer.writeback import Target, WriteBack, WriteBackForm, WriteCost
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnreachableError
from shared.objects import Condition, Status
from tests.unit.consumer.fakes import FakeKubernetes, FakeRegistry
from tests.unit.consumer.worlds import (
    FACTS,
    ID,
    KEY,
    MODEL,
    PREFIX,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)  # fmt: skip

READ = an_object(version="10")


class World:
    def __init__(self, settings=SETTINGS):
        self.registry = FakeRegistry()
        self.kubernetes = FakeKubernetes()
        self.kubernetes.put(READ)
        self.settings = settings
        self.fenced = 0
        self.fence_after = None
        self.told = []
        self.actor = Actor(self.kubernetes, settings, self.fence, self.told.append)
        self.place = Place("first", self.registry, Environments(self.registry))

    def fence(self, key):
        assert key == KEY
        if self.fence_after is not None and self.fenced >= self.fence_after:
            raise TransientError("the shard is no longer ours")
        self.fenced += 1

    def become(self, obj):
        self.kubernetes.put(obj)

    async def perform(self, observation=None, records=None):
        observation = observation or seen(READ)
        return await self.actor.perform(plan(observation, records or {}, FACTS, self.settings), observation, self.place)


@pytest.fixture
def world():
    return World()


async def test_a_create_and_its_patch_leave_one_record_and_its_id_on_the_object(world):
    outcome = await world.perform()
    assert world.registry.only.external_id == "kserve:5a1e/1"
    assert world.kubernetes.labels(KEY)[ID] == world.registry.only.id == outcome.record_id
    assert (outcome.created, outcome.patched, outcome.wrote, outcome.deferred) == (True, True, True, False)
    assert world.told == ["patched"]


async def test_a_new_object_in_a_new_environment_is_two_writes_and_a_patch(world):
    await world.perform()
    assert (world.registry.writes, world.kubernetes.calls["patch"], world.kubernetes.calls["get"]) == (2, 1, 0)


async def test_an_update_changes_the_record(world):
    record = record_of(seen(READ))
    world.registry.put(record)
    outcome = await world.perform(seen(an_object({MODEL: "1", VERSION: "12"}, version="20")), {"1": record})
    assert world.registry.only.version_id == "12"
    assert (outcome.updated, outcome.created, outcome.wrote) == (1, False, True)


async def test_an_empty_plan_does_nothing(world):
    outcome = await world.actor.perform((), seen(READ), None)
    assert not outcome.wrote
    assert (world.registry.calls.total(), world.kubernetes.calls.total(), world.fenced) == (0, 0, 0)


async def test_complaints_are_told_and_stop_nothing(world):
    outcome = await world.actor.perform((Reject("a"), Warn(Topic.NOT_INDEXED, "b"), Reject("c")), seen(READ), None)
    assert outcome.rejections == ("a", "c")


async def test_the_fence_is_passed_before_each_effect(world):
    await world.perform()
    assert world.fenced == 3  # environment, record, patch


@pytest.mark.parametrize(("passes", "environments"), [(0, 0), (1, 1)])
async def test_nothing_happens_behind_the_fence(world, passes, environments):
    world.fence_after = passes
    with pytest.raises(TransientError, match="no longer ours"):
        await world.perform()
    assert (len(world.registry.environments), world.registry.records) == (environments, {})
    assert ID not in world.kubernetes.labels(KEY)


async def test_no_id_is_written_behind_the_fence(world):
    world.fence_after = 2
    outcome = await world.perform()
    assert "no longer ours" in str(outcome.failure)
    assert ID not in world.kubernetes.labels(KEY)


async def test_an_update_is_fenced_too(world):
    record = record_of(seen(READ))
    world.registry.put(record)
    world.fence_after = 0
    with pytest.raises(TransientError):
        await world.perform(seen(an_object({MODEL: "1", VERSION: "12"}, version="20")), {"1": record})
    assert world.registry.only == record


async def test_a_missing_environment_is_forgotten_and_looked_for_again(world):
    world.registry.environments["team-a"] = "gone"
    world.registry.fail("create_record", NotFoundError("no environment"))
    with pytest.raises(TransientError, match="does not find serving environment 'team-a'"):
        await world.perform()
    world.registry.environments["team-a"] = "new"
    await world.perform()
    assert world.registry.only.environment_id == "new"
    assert world.registry.calls["find_environment"] == 2


async def test_a_taken_record_is_a_conflict_for_the_caller(world):
    world.registry.fail("create_record", ConflictError("taken"))
    with pytest.raises(ConflictError):
        await world.perform()


# --- the patch ------------------------------------------------------------------------------------------------------


async def test_outside_the_free_class_the_patch_holds_for_the_version_that_was_judged(world):
    world.become(replace(READ, metadata=replace(READ.metadata, resource_version="11")))
    outcome = await world.perform()
    assert world.kubernetes.calls == {"patch": 2, "get": 1}
    assert outcome.patched


async def test_a_free_patch_does_not_mind_another_version(world):
    free = replace(READ, kind="LLMInferenceService")
    world.become(replace(READ, metadata=replace(READ.metadata, resource_version="11")))
    assert (await world.perform(seen(free))).patched
    assert world.kubernetes.calls == {"patch": 1}


async def test_an_object_that_became_ready_meanwhile_is_judged_again_and_deferred(world):
    world.become(an_object(status=READY, version="11"))
    outcome = await world.perform()
    assert (outcome.patched, outcome.deferred) == (False, True)
    assert world.kubernetes.calls == {"patch": 1, "get": 1}
    assert ID not in world.kubernetes.labels(KEY)
    assert world.told == ["deferred"]


async def test_after_three_tries_it_is_deferred(world):
    assert PATCH_TRIES == 3
    world.kubernetes.fail("patch", *[ConflictError("moved on")] * PATCH_TRIES)
    outcome = await world.perform()
    assert (outcome.patched, outcome.deferred, world.kubernetes.pending) == (False, True, 0)
    assert world.kubernetes.calls == {"patch": PATCH_TRIES, "get": PATCH_TRIES}


async def test_the_third_try_may_succeed(world):
    world.kubernetes.fail("patch", *[ConflictError("moved on")] * (PATCH_TRIES - 1))
    assert (await world.perform()).patched


async def test_a_deferral_that_was_decided_before_costs_no_call(world):
    outcome = await world.actor.perform((DeferPatch("7", WriteCost.RESTART, "x"),), seen(READ), None)
    assert outcome.deferred
    assert world.kubernetes.calls.total() == 0


async def test_a_patch_whose_answer_was_lost_is_found_on_the_object(world):
    world.become(carrying(an_object(version="11"), "100"))
    outcome = await world.actor.perform((PatchObject("100", WriteCost.POD_START, "10", "x"),), seen(READ), None)
    assert (outcome.patched, outcome.deferred) == (True, False), "it stands there, and its removal would be news"
    assert world.kubernetes.calls == {"patch": 1, "get": 1}


@pytest.mark.parametrize("live", [None, "another uid"])
async def test_an_object_that_is_gone_is_left_to_its_own_event(world, live):
    world.kubernetes.objects.clear()
    if live:
        world.become(replace(READ, metadata=replace(READ.metadata, uid="other")))
    outcome = await world.perform()
    assert (outcome.patched, outcome.deferred) == (False, False)
    assert world.told == ["gone"]
    assert live is None or ID not in world.kubernetes.labels(KEY)


async def test_an_object_that_goes_is_not_patched(world):
    world.become(an_object(version="11", going=True))
    outcome = await world.perform()
    assert (outcome.patched, outcome.deferred) == (False, False)
    assert ID not in world.kubernetes.labels(KEY)


async def test_a_patch_that_is_refused_for_good_is_the_callers(world):
    world.kubernetes.fail("patch", PermanentError("denied"))
    with pytest.raises(PermanentError):
        await world.perform()


async def test_a_patch_that_fails_is_told_with_what_was_done_before_it(world):
    world.kubernetes.fail("patch", away := UnreachableError("away"))
    outcome = await world.perform()
    assert (outcome.failure, outcome.created, outcome.patched) == (away, True, False)


async def test_an_annotation_on_an_object_without_any_holds_for_one_version():
    settings = replace(SETTINGS, write_back=WriteBack.ALWAYS, target=Target(ID, WriteBackForm.ANNOTATION))
    world = World(settings)
    await world.perform()
    assert world.kubernetes.objects[KEY]["metadata"]["annotations"] == {ID: world.registry.only.id}


async def test_annotations_that_have_appeared_meanwhile_stay():
    world = World(replace(SETTINGS, write_back=WriteBack.ALWAYS, target=Target(ID, WriteBackForm.ANNOTATION)))
    world.become(an_object(annotations={"a.example/b": "c"}, version="11"))
    assert (await world.perform()).patched
    assert world.kubernetes.objects[KEY]["metadata"]["annotations"] == {
        "a.example/b": "c",
        ID: world.registry.only.id,
    }


async def test_a_live_object_is_read_with_our_own_prefix():
    prefix = "models.example.com/"
    world = World(replace(SETTINGS, prefix=prefix))
    world.become(an_object({prefix + "registered-model-id": "1"}, version="11"))
    live = await world.actor.live(seen(READ))
    assert live.obj.metadata.labels == {prefix + "registered-model-id": "1"}
    assert live.key == KEY
    assert prefix != PREFIX


STOPPED = Status(deployment_mode="Standard", conditions=(Condition("Stopped", "True"), Condition("Ready", "False")))


async def test_what_is_free_only_as_it_stands_holds_for_the_version_that_was_judged(world):
    """The event may have waited for an hour: the object serves by now, and the write would replace its pods."""
    world.become(an_object(status=READY, version="11"))
    outcome = await world.perform(seen(an_object(status=STOPPED, version="10")))
    assert (outcome.patched, outcome.deferred) == (False, True)
    assert ID not in world.kubernetes.labels(KEY)
    assert world.kubernetes.calls == {"patch": 1, "get": 1}


async def test_what_is_free_as_it_still_stands_is_written_at_the_second_try(world):
    world.become(an_object(status=STOPPED, version="11"))
    assert (await world.perform(seen(an_object(status=STOPPED, version="10")))).patched
    assert world.kubernetes.calls == {"patch": 2, "get": 1}


# --- the guard ------------------------------------------------------------------------------------------------------


async def fight(world, times):
    """Write the id so often, and let somebody remove it each time; return the last outcome."""
    for version in range(times):
        obj = replace(READ, metadata=replace(READ.metadata, resource_version=str(100 * version + 10)))
        world.become(obj)
        records = {"1": world.registry.only} if world.registry.records else {}
        outcome = await world.perform(seen(obj), records)
    return outcome


@pytest.mark.looptime(start=0)
async def test_the_fourth_write_within_a_minute_is_deferred_and_counted(world):
    outcome = await fight(world, WRITES_MAX + 1)
    assert (outcome.patched, outcome.deferred) == (False, True)
    assert world.told == ["patched"] * 3 + ["limited"]
    assert world.kubernetes.calls["patch"] == 3
    assert world.actor.wait_s(UID) == WRITES_PER_S == 60.0


@pytest.mark.looptime(start=0)
async def test_a_minute_later_it_is_written_again(world):
    await fight(world, WRITES_MAX + 1)
    await asyncio.sleep(WRITES_PER_S)
    assert (await fight(world, 1)).patched


@pytest.mark.looptime(start=0)
async def test_tries_that_had_no_effect_do_not_count(world):
    world.kubernetes.fail("patch", *[ConflictError("moved on")] * 2)
    await fight(world, 1)
    assert world.kubernetes.calls["patch"] == 3
    assert (await fight(world, WRITES_MAX - 1)).patched
    assert (await fight(world, 1)).deferred


@pytest.mark.looptime(start=0)
async def test_an_id_that_was_found_on_the_object_does_not_count(world):
    await fight(world, WRITES_MAX - 1)
    world.become(carrying(an_object(version="11"), "100"))
    await world.actor.perform((PatchObject("100", WriteCost.POD_START, "10", "x"),), seen(READ), None)
    assert world.actor.wait_s(UID) == 0.0
