"""What the handling of an object tells its owner: which notice, when, and how often."""

import pytest
from msgspec.structs import replace

from consumer.delivery.work import look_later, receive
from consumer.looks import RecordRef, encode
from consumer.notices import About, Topic
from shared.errors import PermanentError, UnreachableError, UnsettledError
from shared.events import EventType
from tests.unit.consumer.deliveries import CLUSTER_ID, SUBJECTS, event_work, look_work
from tests.unit.consumer.fakes import (
    FakeMessage,
)
from tests.unit.consumer.worlds import (
    ID,
    KEY,
    MODEL,
    READY,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)  # fmt: skip

ODH_MODEL = "modelregistry.opendatahub.io/registered-model-id"


async def test_the_first_record_is_told_with_its_id(world):
    await world.handle(event_work(type_=EventType.CREATED))
    ((about, notice),) = world.told
    assert about == About(KEY, UID, "10")
    assert notice.topic is Topic.REGISTERED
    assert f"record {world.registry.only.id} in only" in notice.message


async def test_what_is_as_it_was_is_not_told_again(world):
    await world.handle(event_work(type_=EventType.CREATED))
    await world.handle(event_work(carrying(an_object(version="11"), world.registry.only.id)))
    await world.handle(event_work(carrying(an_object(status=READY, version="20"), world.registry.only.id)))
    assert world.topics == [Topic.REGISTERED]


async def test_a_record_that_a_retry_finds_was_told_when_it_was_made(world):
    world.kubernetes.fail("patch", UnreachableError("API server away"))
    work = event_work()
    await world.handle(work)
    await world.handle(work)
    assert world.topics == [Topic.REGISTERED]


async def test_an_object_that_is_gone_is_not_told_of_its_record(world):
    await world.handle(event_work(an_object(going=True)))
    assert not world.registry.only.deployed
    assert world.told == []


@pytest.mark.parametrize("obj", [an_object({MODEL: "404"}), an_object({MODEL: "iris"})], ids=["missing", "no id"])
async def test_a_dead_letter_is_told_with_its_reason_once_it_is_stored(world, obj):
    world.dead_letters.fail("bury", UnreachableError("broker away"))
    work = event_work(obj)
    await world.handle(work)
    assert world.told == []
    await world.handle(work)
    ((about, notice),) = world.told
    assert (about, notice.topic) == (About(KEY, UID, "10"), Topic.SYNC_FAILED)
    assert notice.message == world.dead_letters.entries[KEY][0]


async def test_a_dead_letter_of_a_look_names_the_uid_that_it_found(world):
    world.events.by_key[KEY] = seen(an_object({MODEL: "404"}, version="10"), models=("404",))
    world.kubernetes.put(an_object({MODEL: "404"}, version="20"))
    await world.handle(look_work())
    ((about, notice),) = world.told
    assert (about, notice.topic) == (About(KEY, UID, "20"), Topic.SYNC_FAILED)


async def test_a_dead_letter_of_a_look_that_could_not_close_what_it_names_names_the_uid_of_the_last_event(world):
    world.events.by_key[KEY] = last = seen(an_object(version="10"))
    world.registry.put(record_of(replace(last, obj=an_object({MODEL: "2"}))))
    world.registry.fail("update_record", PermanentError("405"))
    message = FakeMessage(subject=SUBJECTS.look(KEY), headers=encode((RecordRef("only", UID, "2"),)))
    await world.handle(receive(message, CLUSTER_ID))
    ((about, notice),) = world.told
    assert (about, notice.topic) == (About(KEY, UID, "10"), Topic.SYNC_FAILED)


async def test_a_dead_letter_that_does_not_decode_names_the_object_by_its_subject(world):
    await world.handle(receive(FakeMessage(1, subject=SUBJECTS.event(KEY), headers={}, body=b"{"), CLUSTER_ID))
    ((about, notice),) = world.told
    assert (about, notice.topic) == (About(KEY), Topic.SYNC_FAILED)


async def test_a_denied_patch_is_told_as_a_dead_letter(world):
    world.kubernetes.fail("patch", PermanentError("admission webhook denied it"))
    await world.handle(event_work())
    assert world.topics == [Topic.REGISTERED, Topic.SYNC_FAILED]


async def test_labels_that_contradict_each_other_are_told(world):
    await world.handle(event_work(an_object({MODEL: "1", ODH_MODEL: "2"})))
    assert world.topics == [Topic.CONFLICTING_LABELS, Topic.REGISTERED]
    assert "different values under two prefixes" in world.told[0][1].message


async def test_a_version_of_another_model_is_told(world):
    await world.handle(event_work(an_object({MODEL: "1", VERSION: "21"})))
    assert world.topics == [Topic.REGISTERED, Topic.OTHER_MODELS_VERSION]
    assert "model version 21 is one of registered model 2" in world.told[1][1].message


@pytest.mark.parametrize("status", [None, READY], ids=["rewritten", "deferred"])
async def test_an_id_label_of_another_record_is_told(world, status):
    await world.handle(event_work(carrying(an_object(status=status), "99")))
    assert Topic.OTHER_RECORDS_ID in world.topics
    notice = next(notice for _, notice in world.told if notice.topic is Topic.OTHER_RECORDS_ID)
    assert f"{ID}='99'" in notice.message


TWO = {MODEL: "2", VERSION: "21"}


@pytest.mark.parametrize("status", [None, READY], ids=["rewritten", "deferred"])
async def test_the_id_of_the_former_models_record_is_no_strangers(world, status):
    await world.handle(event_work(an_object(version="10")))
    former = world.registry.only.id
    for version in ("20", "30"):
        changed = carrying(an_object(TWO, status=status, version=version), former)
        await world.handle(event_work(changed, models=("1", "2")))
        await world.handle(look_later(KEY))
        await world.handle(look_work())
    assert Topic.OTHER_RECORDS_ID not in world.topics
    assert {each.model_id: each.deployed for each in world.registry.records.values()} == {"1": False, "2": True}


async def test_the_id_of_a_record_that_an_earlier_owner_of_the_shard_made_is_no_strangers(world):
    record = record_of(seen(an_object(version="10")))
    world.registry.put(record)
    await world.handle(event_work(carrying(an_object(TWO, version="20"), record.id), models=("1", "2")))
    assert world.topics == [Topic.REGISTERED]


async def test_an_id_of_a_former_models_record_that_waits_to_be_written_is_no_strangers(world):
    await world.handle(event_work(an_object(version="10")))
    former = world.registry.only.id
    await world.handle(event_work(carrying(an_object(TWO, status=READY, version="20"), former), models=("1", "2")))
    assert world.reconciler.memory.deferred() == 1
    world.kubernetes.put(carrying(an_object(TWO, version="30"), former))
    await world.handle(look_later(KEY))
    assert world.kubernetes.labels(KEY)[ID] != former
    assert Topic.OTHER_RECORDS_ID not in world.topics


async def test_a_strangers_id_is_told_after_a_change_of_the_model_too(world):
    await world.handle(event_work(an_object(version="10")))
    await world.handle(event_work(carrying(an_object(TWO, version="20"), "99"), models=("1", "2")))
    assert Topic.OTHER_RECORDS_ID in world.topics


async def test_a_registry_that_is_not_there_is_told_with_what_was_looked_for(world):
    world.registry.fail("find_record", UnsettledError("label name=typo: there is no such Service"))
    work = event_work()
    decision = await world.handle(work)
    assert (decision.yields, work.message.answers) == (True, [])
    ((about, notice),) = world.told
    assert (about, notice.topic) == (About(KEY, UID, "10"), Topic.REGISTRY_NOT_FOUND)
    assert "label name=typo: there is no such Service" in notice.message


async def test_a_registry_that_is_looked_for_again_is_told_in_the_same_words_and_not_when_it_is_found(world):
    world.registry.fail("find_record", *[UnsettledError("label name=typo: there is no such Service")] * 5)
    work = event_work()
    for _ in range(6):
        await world.handle(work)
        work.attempt += 1  # as the queue does
    assert world.topics == [Topic.REGISTRY_NOT_FOUND] * 5 + [Topic.REGISTERED]
    assert len({notice.message for _, notice in world.told[:5]}) == 1, "so that the ledger writes it once"


async def test_a_registry_that_a_look_does_not_find_is_told_of_the_object(world):
    world.events.by_key[KEY] = seen(an_object(version="10"))
    world.kubernetes.put(an_object(version="20"))
    world.registry.fail("find_record", UnsettledError("there is no such Service"))
    await world.handle(look_work())
    ((about, notice),) = world.told
    assert (about.uid, notice.topic) == (UID, Topic.REGISTRY_NOT_FOUND)


async def test_a_registry_that_is_away_or_an_object_that_is_gone_is_not_told(world):
    world.registry.fail("find_record", UnreachableError("away"), UnsettledError("there is no such Service"))
    await world.handle(event_work())
    await world.handle(event_work(an_object(going=True, version="20"), sequence=2))
    assert world.registry.pending == 0
    assert world.told == []


async def test_an_id_label_without_a_model_label_is_told_and_nothing_is_touched(world):
    obj = an_object({ID: "99"})
    await world.handle(event_work(obj))
    assert world.topics == [Topic.NOT_INDEXED]
    assert (world.registry.calls.total(), world.kubernetes.calls.total()) == (0, 0)


async def test_an_id_that_must_wait_is_told_with_the_record(world):
    await world.handle(event_work(an_object(status=READY)))
    assert world.topics == [Topic.REGISTERED, Topic.WRITE_BACK_DEFERRED]
    assert f"record {world.registry.only.id} is true" in world.told[1][1].message
    assert "restart" in world.told[1][1].message


async def test_an_id_that_still_must_wait_is_told_in_the_same_words(world):
    record = record_of(seen(an_object(status=READY, version="10")))
    world.registry.put(record)
    await world.handle(event_work(an_object(status=READY, version="20")))
    await world.handle(look_later(KEY))
    deferred = [notice for _, notice in world.told if notice.topic is Topic.WRITE_BACK_DEFERRED]
    assert len(deferred) == 2
    assert deferred[0] == deferred[1], "so that the ledger writes it once"


async def test_what_is_not_true_any_more_is_told_of_the_object_that_it_is_true_of(world):
    await world.handle(event_work(an_object({MODEL: "404"})))
    other = an_object({MODEL: "404"}, version="30")
    other = replace(other, metadata=replace(other.metadata, uid="other"))
    await world.handle(event_work(other, sequence=2))
    assert [about.uid for about, _ in world.told] == [UID, "other"]
