"""One observation after the other: what it costs, what is adopted and remembered, when somebody looks again."""

import pytest
from msgspec.structs import replace

from consumer.act import Actor
from consumer.memory import Memory
from consumer.observation import PassedVersion
from consumer.reconcile import DUE_LOOKS_S, How, Reconciler
from consumer.records import PROPERTY, Record, encode_stamp
from consumer.writeback import WriteBack
from shared.errors import ConflictError, PermanentError, TransientError, UnreachableError
from shared.objects import ModelCopies, ModelStatus
from tests.unit.consumer.fakes import FakeKubernetes, FakeRegistries, FakeRegistry
from tests.unit.consumer.worlds import (
    ID,
    KEY,
    MODEL,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)  # fmt: skip

EVENT, CREATED, FORCED_LOOK, LOOK = How(), How(creates_first=True), How(forced=True, is_look=True), How(is_look=True)
STOPPED = {"serving.kserve.io/stop": "true"}
BEFORE_READY, WHEN_READY = an_object(version="10"), an_object(status=READY, version="20")


class World:
    def __init__(self, settings=SETTINGS):
        self.registry = FakeRegistry()
        self.registry.environments["team-a"] = "3"
        self.kubernetes = FakeKubernetes()
        self.looks = []
        actor = Actor(self.kubernetes, settings, lambda _: None, lambda _: None)
        self.other = FakeRegistry()
        self.other.environments["team-a"] = "3"
        self.registries = FakeRegistries(settings, first=self.registry, second=self.other)
        self.reconciler = Reconciler(
            actor, self.registries, settings, lambda key, delay_s: self.looks.append((key, delay_s))
        )

    async def see(self, observation, how=EVENT):
        self.kubernetes.put(observation.obj)
        return await self.reconciler.reconcile(observation, how)

    async def cost_of(self, observation, how=EVENT):
        """Return the word for what came of it, and the reads, writes and patches that it took."""
        before = (self.registry.reads, self.registry.writes, self.kubernetes.calls["patch"])
        result = await self.see(observation, how)
        after = (self.registry.reads, self.registry.writes, self.kubernetes.calls["patch"])
        return (result.word, *(now - then for then, now in zip(before, after, strict=True)))

    def echo(self, version):
        """Return the event that our own patch causes."""
        return seen(carrying(an_object(version=version), self.registry.only.id))


@pytest.fixture
def world():
    return World()


@pytest.fixture
async def linked(world):
    """A world in which the object is recorded, linked and known."""
    await world.see(seen(BEFORE_READY), CREATED)
    await world.see(world.echo("11"))
    world.registry.calls.clear()
    world.kubernetes.calls.clear()
    return world


# --- what it costs --------------------------------------------------------------------------------------------------


async def test_a_live_creation_creates_without_looking_for_a_record(world):
    await world.see(seen(BEFORE_READY), CREATED)
    assert (world.registry.calls["find_record"], world.registry.calls["find_record_by_name"]) == (0, 0)
    assert (world.registry.writes, world.kubernetes.calls["patch"]) == (1, 1)


async def test_everything_else_finds_first(world):
    await world.see(seen(BEFORE_READY))
    assert world.registry.calls["find_record"] == 1
    assert world.registry.only.deployed


async def test_our_own_echo_costs_nothing(world):
    await world.see(seen(BEFORE_READY), CREATED)
    assert await world.cost_of(world.echo("11")) == ("noop", 0, 0, 0)


async def test_a_repeated_event_costs_nothing(linked):
    assert await linked.cost_of(linked.echo("11")) == ("duplicate", 0, 0, 0)


async def test_an_irrelevant_event_costs_nothing(linked):
    assert await linked.cost_of(linked.echo("12")) == ("noop", 0, 0, 0)


async def test_an_older_event_costs_nothing(linked):
    assert await linked.cost_of(seen(BEFORE_READY)) == ("stale", 0, 0, 0)


async def test_an_unlabelled_object_costs_nothing(world):
    assert await world.cost_of(seen(an_object({}), models=()), CREATED) == ("noop", 0, 0, 0)
    assert await world.cost_of(seen(an_object({}, version="11"), models=())) == ("noop", 0, 0, 0)
    assert await world.cost_of(seen(an_object({}, version="12"), models=(), gone=True)) == ("noop", 0, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(an_object(status=READY, version="20"), id="Ready and a url"),
        pytest.param(an_object({MODEL: "1"}, version="20"), id="version label removed"),
        pytest.param(an_object(annotations={"serving.kserve.io/stop": "true"}, version="20"), id="stopped"),
        pytest.param(an_object(going=True, version="20"), id="deleted"),
    ],
)
async def test_a_relevant_change_costs_one_read_and_one_write(linked, change):
    changed = carrying(change, linked.registry.only.id)
    assert await linked.cost_of(seen(changed)) == ("applied", 1, 1, 0)


async def test_a_new_version_costs_one_more_read_to_check_it(linked):
    changed = carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), linked.registry.only.id)
    assert await linked.cost_of(seen(changed)) == ("applied", 2, 1, 0)
    assert linked.registry.only.version_id == "12"


async def test_a_new_object_costs_three_writes_and_one_patch_until_ready():
    world = World()
    world.registry.environments.clear()
    await world.see(seen(BEFORE_READY), CREATED)
    await world.see(world.echo("11"))
    await world.see(seen(carrying(WHEN_READY, world.registry.only.id)))
    assert (world.registry.writes, world.kubernetes.calls["patch"]) == (3, 1)


async def test_versions_that_say_nothing_new_cost_nothing(linked):
    passed = (PassedVersion("1", "11", "12", "t", 1), PassedVersion("1", "11", "13", "t", 1))
    assert await linked.cost_of(replace(linked.echo("14"), passed=passed)) == ("noop", 0, 0, 0)


async def test_a_version_that_was_passed_over_is_recorded(linked):
    passed = (PassedVersion("1", "12", "12", "t12", 1),)
    assert await linked.cost_of(replace(linked.echo("14"), passed=passed)) == ("applied", 2, 1, 0)  # a check of 12
    assert [change.version for change in linked.registry.only.stamp.history] == ["11", "12", "11"]


async def test_a_forced_look_reads_the_registry_though_nothing_changed(linked):
    assert await linked.cost_of(linked.echo("11"), FORCED_LOOK) == ("noop", 1, 0, 0)


async def test_a_look_that_is_not_forced_costs_nothing(linked):
    assert await linked.cost_of(linked.echo("11"), LOOK) == ("noop", 0, 0, 0)


async def test_a_forced_look_mends_what_was_edited_by_hand(linked):
    linked.registry.put(replace(linked.registry.only, deployed=False))
    assert await linked.cost_of(linked.echo("11"), FORCED_LOOK) == ("applied", 1, 1, 0)
    assert linked.registry.only.deployed


@pytest.mark.parametrize("obj", [BEFORE_READY, WHEN_READY], ids=["written", "deferred"])
async def test_what_is_said_again_of_an_object_that_has_moved_on_leaves_the_id_to_the_event_to_come(world, obj):
    assert await world.cost_of(seen(obj), replace(FORCED_LOOK, moved_on=True)) == ("applied", 5, 1, 0)
    assert (world.looks, world.reconciler.memory.deferred()) == ([], 0)


async def test_a_record_that_is_gone_is_made_again(linked):
    as_it_stands = linked.echo("11")
    linked.registry.records.clear()
    await linked.see(as_it_stands, FORCED_LOOK)
    assert linked.registry.only.external_id == "kserve:5a1e/1"


async def test_a_closed_record_of_another_model_is_not_read_again(linked):
    moved = carrying(an_object({MODEL: "2"}, version="20"), linked.registry.only.id)
    await linked.see(seen(moved, models=("1", "2")))
    linked.registry.calls.clear()
    ready = carrying(an_object({MODEL: "2"}, version="30", status=READY), "101")
    assert await linked.cost_of(seen(ready, models=("1", "2"))) == ("applied", 1, 1, 0)
    assert {record.model_id: record.deployed for record in linked.registry.records.values()} == {"1": False, "2": True}


async def test_the_end_of_an_object_without_label_goes_into_the_closed_record(linked):
    await linked.see(seen(carrying(an_object({}, version="20"), "100")))
    assert not linked.registry.only.deployed
    await linked.see(seen(carrying(an_object({}, version="30"), "100"), gone=True))
    assert linked.registry.only.stamp.deleted


# --- records that are there already ---------------------------------------------------------------------------------


async def test_a_record_of_ours_whose_answer_was_lost_is_adopted(world):
    world.registry.lose_answer("create_record", UnreachableError("timed out"))
    with pytest.raises(UnreachableError):
        await world.see(seen(BEFORE_READY), CREATED)
    await world.see(seen(BEFORE_READY), CREATED)  # not even told that it was tried before
    assert len(world.registry.records) == 1
    assert world.kubernetes.labels(KEY)[ID] == world.registry.only.id
    assert world.registry.pending == 0


async def test_a_predecessors_record_is_adopted_by_its_name(world):
    world.registry.put(Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", deployed=True))
    result = await world.see(seen(BEFORE_READY), CREATED)
    assert result.word == "applied"
    assert (world.registry.only.id, world.registry.only.external_id) == ("7", "kserve:5a1e/1")
    assert world.registry.only.stamp.uid == UID


async def test_a_name_that_is_taken_by_something_else_is_for_a_person(world):
    world.registry.fail("create_record", ConflictError("externalId"), ConflictError("externalId"))
    with pytest.raises(PermanentError, match=f"isvc/team-a/iris.*{UID}.*taken"):
        await world.see(seen(BEFORE_READY), CREATED)
    assert world.reconciler.memory.get(UID) is None


async def test_an_external_id_that_is_taken_when_a_record_is_adopted_is_for_a_person(world):
    """The registry keeps them unique over all its kinds: a model may have it, which no find of records shows."""
    world.registry.put(Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", deployed=True))
    world.registry.fail("update_record", ConflictError("externalId"), ConflictError("externalId"))
    with pytest.raises(PermanentError, match=f"isvc/team-a/iris.*{UID}.*taken"):
        await world.see(seen(BEFORE_READY))
    assert world.registry.pending == 0


async def test_a_predecessors_record_of_another_model_is_closed_and_ours_gets_a_name_of_its_own(world):
    world.registry.put(Record("7", f"iris/{UID}", "", "3", "9", deployed=True))
    assert (await world.see(seen(BEFORE_READY), CREATED)).word == "applied"
    states = {record.name: record.deployed for record in world.registry.records.values()}
    assert states == {f"iris/{UID}": False, f"iris/{UID}/1": True}


async def test_a_model_that_comes_back_costs_a_read_and_a_write_for_each_of_the_two_records(world):
    await world.see(seen(BEFORE_READY), CREATED)
    await world.see(seen(an_object({MODEL: "2"}, version="20"), models=("1", "2")))
    reads, writes = world.registry.reads, world.registry.writes
    await world.see(seen(an_object(version="30"), models=("1", "2")))
    assert (world.registry.reads - reads, world.registry.writes - writes) == (2, 2)


async def test_a_record_from_a_newer_state_is_left_alone(world):
    world.registry.put(record_of(seen(an_object(version="99"))))
    before = world.registry.only
    assert (await world.see(seen(BEFORE_READY))).word == "stale"
    assert world.registry.only == before
    assert world.kubernetes.calls["patch"] == 0


async def test_a_newer_record_that_collides_with_a_creation_is_left_alone(world):
    world.registry.put(record_of(seen(an_object(version="99"))))
    assert (await world.see(seen(BEFORE_READY), CREATED)).word == "stale"
    assert world.registry.calls["update_record"] == 0


async def test_what_is_stale_is_never_remembered(world):
    world.registry.put(record_of(seen(an_object(version="99"))))
    await world.see(seen(BEFORE_READY))
    assert world.reconciler.memory.get(UID) is None
    await world.see(seen(BEFORE_READY), CREATED)
    assert world.reconciler.memory.get(UID) is None


async def test_a_record_that_was_broken_by_hand_is_mended(world):
    broken = record_of(seen(BEFORE_READY))
    stamp = replace(broken.stamp, resource_version="latest")
    world.registry.put(replace(broken, properties={PROPERTY: encode_stamp(stamp)}))
    assert (await world.see(seen(BEFORE_READY))).word == "applied"
    assert world.registry.only.stamp.resource_version == "10"


@pytest.mark.parametrize("method", ["find_record", "model_exists", "create_record"])
async def test_a_failure_is_the_callers_and_nothing_is_remembered(world, method):
    world.registry.fail(method, TransientError("away"))
    with pytest.raises(TransientError, match="away"):
        await world.see(seen(BEFORE_READY))
    assert world.registry.pending == 0
    assert world.reconciler.memory.get(UID) is None
    await world.see(seen(BEFORE_READY))
    assert world.registry.only.deployed


async def test_a_patch_that_fails_leaves_the_record_and_the_next_try_patches(world):
    world.kubernetes.fail("patch", UnreachableError("away"))
    with pytest.raises(UnreachableError):
        await world.see(seen(BEFORE_READY), CREATED)
    assert world.registry.only.deployed
    assert await world.cost_of(seen(BEFORE_READY)) == ("applied", 1, 0, 1)


# --- complaints -----------------------------------------------------------------------------------------------------


async def test_a_missing_model_is_rejected_and_settles_nothing_else(world):
    result = await world.see(seen(an_object({MODEL: "404"}), models=("404",)), CREATED)
    assert result.rejections == ("registered model 404 does not exist in the registry",)
    assert world.registry.records == {}


async def test_a_bad_label_does_not_stop_the_end_of_the_older_record(linked):
    bad = carrying(an_object({MODEL: "mnist"}, version="20"), "100")
    result = await linked.see(seen(bad, models=("1", "mnist")))
    assert len(result.rejections) == 1
    assert not linked.registry.only.deployed


async def test_what_is_planned_or_known_settles_and_what_is_stale_does_not(world):
    assert (await world.see(seen(BEFORE_READY), CREATED)).settles
    assert (await world.see(world.echo("11"))).settles
    assert not (await world.see(seen(BEFORE_READY))).settles


async def test_a_forced_look_reads_the_records_of_former_models_which_a_late_request_may_have_opened_again(world):
    await world.see(seen(BEFORE_READY), CREATED)
    changed = seen(carrying(an_object({MODEL: "2"}, version="20"), "100"), models=("1", "2"))
    await world.see(changed)
    former = next(each for each in world.registry.records.values() if each.model_id == "1")
    world.registry.put(replace(former, deployed=True))
    await world.see(changed, FORCED_LOOK)
    assert [each.model_id for each in world.registry.records.values() if each.deployed] == ["2"]


async def test_a_return_to_the_known_state_is_written_when_a_try_in_between_was_not_finished(world):
    await world.see(seen(BEFORE_READY), CREATED)
    world.registry.lose_answer("update_record", UnreachableError("no answer"))
    with pytest.raises(UnreachableError):
        await world.see(seen(carrying(an_object(annotations=STOPPED, version="20"), "100")))
    assert not world.registry.only.deployed, "it was written all the same"
    await world.see(seen(carrying(an_object(version="30"), "100")))
    assert world.registry.only.deployed


async def test_a_return_reads_the_records_that_an_unfinished_try_may_have_opened(world):
    await world.see(seen(BEFORE_READY), CREATED)
    for version, model in (("20", "2"), ("30", "1")):
        await world.see(seen(carrying(an_object({MODEL: model}, version=version), "100"), models=("1", "2")))
    world.kubernetes.fail("patch", TransientError("webhook away"))
    with pytest.raises(TransientError):
        await world.see(seen(carrying(an_object({MODEL: "2"}, version="40"), "100"), models=("1", "2")))
    await world.see(seen(carrying(an_object(version="50"), "100"), models=("1", "2")))
    assert [each.model_id for each in world.registry.records.values() if each.deployed] == ["1"]


async def test_an_id_that_our_lost_request_has_written_is_missed_when_it_goes(world):
    world.kubernetes.lose_answer("patch", ConflictError("the object has moved on"))
    await world.see(seen(BEFORE_READY), CREATED)
    record = world.registry.only
    bare = seen(an_object(version="40"))
    await world.see(bare)
    assert world.kubernetes.labels(KEY)[ID] == record.id


async def test_another_clusters_record_does_not_make_our_events_old_news(world):
    stamp = replace(record_of(seen(BEFORE_READY)).stamp, cluster_id="other", epoch=99)
    theirs = replace(record_of(seen(BEFORE_READY)), properties={PROPERTY: encode_stamp(stamp)})
    world.registry.put(theirs)
    result = await world.see(seen(BEFORE_READY))
    assert len(result.rejections) == 1
    assert world.registry.only == theirs


# --- ids that cannot be written yet ---------------------------------------------------------------------------------


async def test_a_costly_write_is_deferred_and_looked_at_after_one_and_five_seconds(world):
    await world.see(seen(WHEN_READY))
    assert DUE_LOOKS_S == (1.0, 5.0)
    assert world.looks == [(KEY, 1.0), (KEY, 5.0)]
    assert world.reconciler.memory.deferred() == 1
    assert world.registry.only.deployed


async def test_each_later_event_of_it_is_followed_by_looks(world):
    await world.see(seen(WHEN_READY))
    world.looks.clear()
    await world.see(seen(replace(WHEN_READY, metadata=replace(WHEN_READY.metadata, resource_version="21"))))
    assert world.looks == [(KEY, 1.0), (KEY, 5.0)]


async def test_looks_cause_no_further_looks_and_no_call_while_it_is_costly(world):
    await world.see(seen(WHEN_READY))
    world.looks.clear()
    assert await world.cost_of(seen(WHEN_READY), LOOK) == ("noop", 0, 0, 0)
    assert world.looks == []
    assert world.reconciler.memory.deferred() == 1


def rolling(version):
    conditions = (READY.conditions[0], replace(READY.conditions[1], reason="MinimumReplicasAvailable"))
    obj = an_object(status=replace(READY, conditions=conditions), version=version)
    return replace(obj, status=replace(obj.status, model_status=ModelStatus(copies=ModelCopies(1))))


async def test_a_look_that_defers_causes_no_further_looks(world):
    await world.see(seen(WHEN_READY), FORCED_LOOK)
    assert (world.looks, world.reconciler.memory.deferred()) == ([], 1)


async def test_a_look_that_finds_it_cheap_patches_without_asking_the_registry(world):
    await world.see(seen(WHEN_READY))
    assert await world.cost_of(seen(rolling("25")), LOOK) == ("applied", 0, 0, 1)
    assert world.kubernetes.labels(KEY)[ID] == world.registry.only.id
    assert world.reconciler.memory.deferred() == 0


async def test_a_look_of_our_own_overtakes_no_event(world):
    """Its event, and those before it, are still to come: with versions that belong into the history."""
    await world.see(seen(WHEN_READY))
    newest = an_object({MODEL: "1", VERSION: "11"}, status=READY, version="40")
    assert await world.cost_of(seen(newest), LOOK) == ("noop", 0, 0, 0)
    await world.see(seen(an_object({MODEL: "1", VERSION: "12"}, status=READY, version="30")))
    await world.see(seen(newest))
    assert [change.version for change in world.registry.only.stamp.history] == ["11", "12", "11"]


async def test_a_look_at_an_object_that_moved_to_another_model_writes_no_id(world):
    await world.see(seen(WHEN_READY))
    moved = replace(rolling("40"), metadata=an_object({MODEL: "2"}, version="40").metadata)
    assert await world.cost_of(seen(moved), LOOK) == ("noop", 0, 0, 0)


async def test_the_echo_of_a_late_patch_costs_nothing(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(rolling("25")), LOOK)
    echo = seen(carrying(rolling("26"), world.registry.only.id))
    assert await world.cost_of(echo) == ("noop", 0, 0, 0)


async def test_a_deferred_id_that_somebody_else_wrote_is_no_longer_due(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(carrying(an_object(status=READY, version="30"), world.registry.only.id)))
    assert world.reconciler.memory.deferred() == 0


async def test_a_deleted_object_waits_for_no_id(world):
    await world.see(seen(WHEN_READY))
    await world.see(seen(an_object(status=READY, version="30", going=True)))
    assert world.reconciler.memory.deferred() == 0


async def test_without_write_back_nothing_is_due():
    world = World(replace(SETTINGS, write_back=WriteBack.OFF))
    await world.see(seen(WHEN_READY))
    assert (world.looks, world.kubernetes.calls["patch"]) == ([], 0)


async def test_what_is_forgotten_costs_one_read(linked):
    linked.reconciler.memory = Memory()
    assert await linked.cost_of(linked.echo("12")) == ("noop", 1, 0, 0)
