"""One observation after the other: what it costs, what is remembered, and what is rejected."""

import pytest
from msgspec.structs import replace

from consumer.observation import PassedVersion
from consumer.records import PROPERTY, encode_stamp
from shared.errors import ConflictError, TransientError, UnreachableError
from tests.unit.consumer.reconciling import BEFORE_READY, CREATED, FORCED_LOOK, LOOK, STOPPED, WHEN_READY, World
from tests.unit.consumer.worlds import ID, KEY, MODEL, READY, VERSION, an_object, carrying, record_of, seen

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
    unfinished = await world.see(seen(carrying(an_object({MODEL: "2"}, version="40"), "100"), models=("1", "2")))
    assert unfinished.failure is not None
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
