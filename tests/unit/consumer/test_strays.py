"""A look that names records: which of them are closed, and which are left alone."""

import pytest
from msgspec.structs import replace

from consumer.delivery.work import receive
from consumer.delivery.workqueue import WorkQueue
from consumer.looks import RecordRef, encode
from consumer.verdict import Ack, Bury, Retry
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from tests.unit.consumer.deliveries import CLUSTER_ID, SUBJECTS
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.straying import IN_SYNC, NOW, OTHER_CLUSTER, RECORD, World
from tests.unit.consumer.worlds import KEY, MODEL, PREFIX, UID, VERSION, an_object, record_of, seen


@pytest.fixture
def world():
    return World()


def ref(registry: str = "a", uid: str = UID, model: str = "1") -> RecordRef:
    return RecordRef(registry, uid, model)


async def test_the_record_of_an_object_that_no_event_tells_of_is_closed_when_it_is_gone(world):
    world.a.put(RECORD)
    assert await world.look(ref()) == Ack()
    closed = world.a.only
    assert (closed.deployed, closed.stamp.deleted, closed.stamp.undeployed_at) == (False, True, NOW)
    assert closed.stamp.history == RECORD.stamp.history


async def test_an_object_that_lives_keeps_its_record_though_no_event_tells_of_it(world):
    world.a.put(RECORD)
    world.lives()
    assert await world.look(ref()) == Ack()
    assert (world.a.only, world.a.writes) == (RECORD, 0)


async def test_the_former_owner_of_a_name_is_closed_and_the_present_one_is_not(world):
    """The name belongs to uid `next` now; the event that told of the end of the first one is long gone."""
    obj = an_object()
    following = replace(seen(replace(obj, metadata=replace(obj.metadata, uid="next"))), uid="next")
    world.lives(following)
    world.events.by_key[KEY] = following
    world.a.put(RECORD)
    await world.look(ref())
    states = {record.external_id: record.deployed for record in world.a.records.values()}
    assert states == {f"kserve:{UID}/1": False, "kserve:next/1": True}


async def test_a_record_in_a_former_registry_is_closed_and_the_objects_own_is_kept(world):
    world.lives()
    world.events.by_key[KEY] = IN_SYNC
    world.a.put(RECORD)
    world.b.put(replace(RECORD, runtime="old"))
    await world.look(ref("b"))
    assert (world.a.only.deployed, world.b.only.deployed) == (True, False)


async def test_the_record_of_a_forgotten_model_is_closed_and_that_of_the_present_one_is_kept(world):
    relabelled = seen(an_object({MODEL: "2", VERSION: "21", PREFIX + "inference-service-id": "8"}), models=("2",))
    world.lives(relabelled)
    world.events.by_key[KEY] = relabelled
    world.a.put(RECORD)
    world.a.put(replace(record_of(relabelled), id="8", name=f"iris/{UID}/2"))
    await world.look(ref())
    assert {record.id: record.deployed for record in world.a.records.values()} == {"7": False, "8": True}


async def test_the_objects_own_record_is_the_reconcilers_business_though_it_is_named(world):
    world.lives()
    world.events.by_key[KEY] = IN_SYNC
    world.a.put(replace(RECORD, deployed=False))
    await world.look(ref())
    assert (world.a.only.deployed, world.a.writes) == (True, 1)


async def test_two_names_of_one_registry_end_with_the_record_deployed(world):
    world.registries.lookups["b"] = world.registries.lookups["a"]
    world.lives()
    world.events.by_key[KEY] = IN_SYNC
    world.a.put(RECORD)
    await world.look(ref("b"))
    assert world.a.only.deployed is True


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(RECORD, properties={}), id="no cluster"),
        pytest.param(replace(RECORD, external_id="kserve:other/1", name="other"), id="not there"),
    ],
)
async def test_a_record_that_is_not_ours_is_not_touched(world, record):
    world.a.put(record)
    assert await world.look(ref()) == Ack()
    assert (world.a.only, world.a.writes) == (record, 0)


async def test_a_record_of_another_cluster_is_not_touched():
    world = World(OTHER_CLUSTER)
    world.a.put(RECORD)
    await world.look(ref())
    assert (world.a.only, world.a.writes) == (RECORD, 0)


async def test_a_registry_that_is_not_allowed_is_not_asked(world):
    world.registries.refused = {"a"}
    world.a.put(RECORD)
    assert await world.look(ref()) == Ack()
    assert (world.a.reads, world.a.writes) == (0, 0)


async def test_a_closing_that_fails_is_tried_again(world):
    world.a.put(RECORD)
    world.a.fail("update_record", TransientError("away"))
    assert isinstance(await world.look(ref()), Retry)
    assert world.a.pending == 0
    assert await world.look(ref()) == Ack()
    assert world.a.only.deployed is False


@pytest.mark.parametrize("refusal", [PermanentError("405"), ConflictError("409"), NotFoundError("404")], ids=repr)
async def test_a_closing_that_is_refused_for_good_is_for_a_person_and_does_not_hold_up_the_rest_of_the_look(
    world, refusal
):
    world.b.put(RECORD)
    world.a.put(replace(RECORD, deployed=False))
    world.lives()
    world.events.by_key[KEY] = IN_SYNC
    world.b.fail("update_record", refusal)
    decision = await world.look(ref("b"))
    assert isinstance(decision, Bury)
    assert str(refusal) in decision.reason
    assert (world.a.only.deployed, world.b.only.deployed) == (True, True)
    assert await world.look(ref("b")) == Ack()
    assert not world.b.only.deployed


async def test_a_closed_record_costs_no_write(world):
    world.a.put(RECORD)
    await world.look(ref())
    writes = world.a.writes
    await world.look(ref())
    assert world.a.writes == writes == 1


async def test_the_end_of_a_deleted_object_is_the_time_of_its_event(world):
    gone = replace(seen(an_object(), gone=True), time="2026-11-30T11:30:00Z")
    world.events.by_key[KEY] = gone
    world.a.put(RECORD)
    await world.look()
    assert world.a.only.stamp.undeployed_at == "2026-11-30T11:30:00Z"


def test_a_look_that_replaces_a_waiting_one_takes_its_records_over():
    queue = WorkQueue(PREFIX)

    def look(sequence: int, *refs: RecordRef):
        return receive(FakeMessage(sequence, subject=SUBJECTS.look(KEY), headers=encode(refs)), CLUSTER_ID)

    queue.add(look(1, ref("a")), 0.0)
    [superseded] = queue.add(look(2, ref("b")), 0.0)
    assert superseded.message.sequence == 1
    assert set(queue.next(0.0).named) == {ref("a"), ref("b")}


async def test_the_record_of_a_later_model_is_closed_though_its_external_id_was_edited(world):
    world.a.put(RECORD)
    world.a.put(replace(RECORD, id="8", name=f"iris/{UID}/2", model_id="2", external_id="bar"))
    await world.look(ref(model="2"))
    assert (world.a.records["8"].deployed, world.a.records["8"].external_id) == (False, f"kserve:{UID}/2")
