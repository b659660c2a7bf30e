"""Records that are there already: which are adopted, which are left alone, and what is for a person."""

import pytest
from msgspec.structs import replace

from consumer.records import PROPERTY, Record, encode_stamp
from shared.errors import ConflictError, PermanentError, TransientError, UnreachableError
from tests.unit.consumer.reconciling import BEFORE_READY, CREATED, FORCED_LOOK
from tests.unit.consumer.worlds import ID, KEY, MODEL, UID, an_object, record_of, seen


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
    world.registry.fail("create_record", *[ConflictError("409, taken")] * 2)
    with pytest.raises(PermanentError, match=f"isvc/team-a/iris.*{UID}.*taken"):
        await world.see(seen(BEFORE_READY), CREATED)
    assert world.reconciler.memory.get(UID) is None


async def test_an_external_id_that_is_taken_when_a_record_is_adopted_is_for_a_person(world):
    """The registry keeps them unique over all its kinds: a model may have it, which no find of records shows."""
    world.registry.put(Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", deployed=True))
    world.registry.fail("update_record", *[ConflictError("409, taken")] * 2)
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
    world.kubernetes.fail("patch", away := UnreachableError("away"))
    assert (await world.see(seen(BEFORE_READY), CREATED)).failure is away
    assert world.registry.only.deployed
    assert await world.cost_of(seen(BEFORE_READY)) == ("applied", 1, 0, 1)


async def test_a_change_that_is_refused_without_any_name_in_it_does_not_blame_a_name(world):
    world.registry.put(record_of(seen(BEFORE_READY), deployed=False))
    world.registry.fail("update_record", *[ConflictError("409, though it has neither name nor externalId")] * 2)
    with pytest.raises(PermanentError) as raised:
        await world.see(seen(BEFORE_READY))
    assert str(raised.value).endswith(": 409, though it has neither name nor externalId")
    assert "taken" not in str(raised.value)


BOTH = ("1", "2")


@pytest.fixture
async def edited(world):
    """A world in which the record of the object's second model has another externalId, and nobody remembers it."""
    await world.see(seen(BEFORE_READY), CREATED)
    await world.see(seen(an_object({MODEL: "2"}, version="20"), models=BOTH))
    assert world.registry.calls["find_record_by_name"] == 0, "a model label that changes costs no more than it did"
    world.registry.put(replace(second(world), external_id="bar"))
    world.reconciler.memory.forget(UID)
    return world


def second(world):
    return world.registry.records["101"]


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "gone"])
async def test_a_later_models_record_whose_external_id_was_edited_is_found_by_its_name_after_a_conflict(edited, gone):
    assert (await edited.see(seen(an_object({MODEL: "2"}, version="30"), models=BOTH, gone=gone))).word == "applied"
    assert (second(edited).external_id, second(edited).deployed) == ("kserve:5a1e/2", not gone)
    assert len(edited.registry.records) == 2


@pytest.mark.parametrize("labels", [{}, {MODEL: "1"}], ids=["none", "another"])
async def test_a_look_closes_a_former_models_record_whose_external_id_was_edited(edited, labels):
    await edited.see(seen(an_object(labels, version="30"), models=BOTH), FORCED_LOOK)
    assert (second(edited).external_id, second(edited).deployed) == ("kserve:5a1e/2", False)


async def test_a_later_models_record_that_is_another_clusters_is_refused(edited):
    record = second(edited)
    stamp = replace(record.stamp, cluster_id="c-2")
    edited.registry.put(theirs := replace(record, properties={PROPERTY: encode_stamp(stamp)}))
    (reason,) = (await edited.see(seen(an_object({MODEL: "2"}, version="30"), models=BOTH))).rejections
    assert "was written for cluster id c-2" in reason
    assert second(edited) == theirs
