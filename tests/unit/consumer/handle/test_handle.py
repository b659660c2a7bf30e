"""From one message to its end: what is acknowledged, buried or tried again, and that nothing is in between."""

import logging

import pytest
from msgspec.structs import replace

from consumer.delivery.work import receive
from consumer.verdict import Ack, Bury, Retry
from shared.errors import ConflictError, NotSentError, TransientError, UnreachableError, UnsettledError
from shared.events import EventType
from tests.unit.consumer.deliveries import CLUSTER_ID, SUBJECTS, event_work
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.worlds import ID, KEY, MODEL, READY, UID, VERSION, an_object, carrying

UNKNOWN_MODEL = an_object({MODEL: "404"}, version="20")


async def test_what_is_done_is_acknowledged_after_its_effects(world):
    work = event_work(type_=EventType.CREATED)
    assert await world.handle(work) == Ack()
    assert work.message.answers == ["ack"]
    assert world.registry.only.deployed
    assert world.words == ["applied"]


@pytest.mark.parametrize("method", ["create_record", "find_record", "model_exists"])
async def test_what_may_succeed_later_is_not_acknowledged(world, method):
    world.registry.fail(method, TransientError("away"))
    work = event_work()
    assert isinstance(await world.handle(work), Retry)
    assert work.message.answers == []
    assert world.words == ["retry"]
    assert world.registry.pending == 0
    assert await world.handle(work) == Ack()


async def test_what_is_held_back_counts_as_no_attempt_and_fills_no_log(world, caplog):
    work = event_work()
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            world.registry.fail("find_record", NotSentError("the registry is away", retry_after_s=4.0))
            assert await world.handle(work) == Retry(4.5, "the registry is away", held=True)
            work.attempt += 1  # as the queue does
    assert (work.attempt, work.message.answers, set(world.words)) == (2, [], {"held"})
    assert caplog.records == []


async def test_what_nobody_can_place_gives_way_to_a_newer_state_until_it_can_be_placed(world):
    work = event_work()
    world.registry.fail("find_record", UnsettledError("several registries"))
    await world.handle(work)
    assert work.yields
    world.registry.fail("find_record", TransientError("away"))
    await world.handle(work)
    assert not work.yields


async def test_a_state_whose_records_are_written_and_whose_id_is_not_is_known_as_one(world):
    work = event_work()
    world.registry.fail("find_record", TransientError("away"))
    await world.handle(work)
    assert not work.recorded
    world.kubernetes.fail("patch", TransientError("forbidden"))
    decision = await world.handle(work)
    assert (type(decision), work.recorded, world.registry.only.deployed) == (Retry, True, True)


async def test_a_conflict_is_looked_at_again_soon(world):
    world.registry.fail("find_record", ConflictError("moved"))
    verdict = await world.handle(event_work())
    assert verdict == Retry(0.1, "moved")


@pytest.mark.parametrize("bug", [ValueError("bug"), KeyError("bug"), AssertionError("bug"), ZeroDivisionError()])
async def test_a_fault_of_this_program_is_logged_and_tried_again(world, caplog, bug):
    world.registry.fail("find_record", bug)
    work = event_work()
    with caplog.at_level(logging.ERROR):
        assert isinstance(await world.handle(work), Retry)
    assert work.message.answers == []
    (entry,) = [each for each in caplog.records if each.message == "fault in this program"]
    assert entry.object == str(KEY)
    assert entry.exc_info is not None
    assert await world.handle(work) == Ack()


async def test_a_fault_with_one_object_does_not_touch_another(world):
    world.registry.fail("find_record", ValueError("bug"))
    other = an_object()
    other = replace(other, metadata=replace(other.metadata, name="other", uid="other"))
    await world.handle(event_work())
    assert await world.handle(event_work(other)) == Ack()


async def test_the_event_that_we_wrote_to_costs_nothing_when_it_comes_again_before_its_echo(world):
    await world.handle(event_work(an_object()))
    calls = world.registry.calls.total() + world.kubernetes.calls.total()
    await world.handler.handle(event_work(an_object()))
    assert world.registry.calls.total() + world.kubernetes.calls.total() == calls
    assert world.words[-1] == "duplicate"


async def test_the_whole_story_of_an_object_is_one_record(world):
    ready = an_object(status=READY, version="30")
    for number, (obj, type_) in enumerate(
        (
            (an_object(version="10"), EventType.CREATED),
            (carrying(an_object(version="20"), "100"), EventType.UPDATED),
            (carrying(ready, "100"), EventType.UPDATED),
            (
                carrying(replace(ready, metadata=replace(ready.metadata, resource_version="40")), "100"),
                EventType.DELETED,
            ),
        )
    ):
        assert await world.handle(event_work(obj, type_, sequence=number + 1)) == Ack()
    record = world.registry.only
    assert (record.id, record.deployed, record.url, record.stamp.uid) == ("100", False, "http://iris.example", UID)
    assert world.words == ["applied", "noop", "applied", "applied"]
    assert world.dead_letters.entries == {}


# --- dead letters ---------------------------------------------------------------------------------------------------


async def test_what_can_never_succeed_is_buried_then_terminated(world, caplog):
    work = event_work(UNKNOWN_MODEL, sequence=41)
    verdict = await world.handle(work)
    assert isinstance(verdict, Bury)
    reason, headers, body = world.dead_letters.entries[KEY]
    assert "registered model 404 does not exist" in reason
    assert work.message.answers == [f"terminate: {reason}"]
    assert headers.items() >= (work.message.headers | {"isvc-seq": "41"}).items()
    assert body == work.message.body
    assert world.words == ["dead"]


async def test_a_burial_that_fails_is_tried_again_and_nothing_is_acknowledged(world):
    world.dead_letters.fail("bury", UnreachableError("broker away"), UnreachableError("broker away"))
    work = event_work(UNKNOWN_MODEL)
    for _ in range(2):
        assert isinstance(await world.handle(work), Retry)
        work.attempt += 1
        assert work.message.answers == []
    assert world.dead_letters.pending == 0
    assert isinstance(await world.handle(work), Bury)
    assert work.message.answers[0].startswith("terminate: ")
    assert KEY in world.dead_letters.entries


async def test_a_burial_that_is_tried_again_decides_nothing_anew(world):
    world.dead_letters.fail("bury", UnreachableError("broker away"))
    work = event_work(UNKNOWN_MODEL)
    await world.handle(work)
    asked = world.registry.calls.total()
    world.registry.models.add("404")
    await world.handle(work)
    assert world.registry.calls.total() == asked


async def test_a_message_that_does_not_decode_is_buried(world):
    work = receive(FakeMessage(1, subject=SUBJECTS.event(KEY), headers={"ce-type": "x"}, body=b"{"), CLUSTER_ID)
    assert isinstance(await world.handle(work), Bury)
    assert world.dead_letters.entries[KEY][2] == b"{"


async def test_a_bad_label_does_not_stop_what_can_be_recorded(world):
    work = event_work(an_object({MODEL: "1", VERSION: "latest"}))
    assert isinstance(await world.handle(work), Bury)
    assert world.registry.only.deployed
    assert world.registry.only.version_id == ""
    assert ID in world.kubernetes.labels(KEY)


async def test_a_complaint_is_cleared_when_a_later_event_is_applied(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    await world.handle(event_work(an_object(version="30"), sequence=2))
    assert world.dead_letters.entries == {}


async def test_a_complaint_is_repeated_by_the_same_event_again_and_costs_no_read(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    world.dead_letters.entries.clear()  # by an event of an earlier owner of the name
    reads = world.registry.reads
    assert isinstance(await world.handle(event_work(UNKNOWN_MODEL, sequence=2)), Bury)
    assert KEY in world.dead_letters.entries
    assert world.registry.reads == reads


async def test_a_complaint_that_is_buried_is_not_buried_again_by_an_event_that_changes_nothing(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    assert isinstance(await world.handle(event_work(UNKNOWN_MODEL, sequence=2)), Ack)
    assert KEY in world.dead_letters.entries
    assert world.words == ["dead", "duplicate"]


async def test_a_complaint_whose_burial_failed_is_buried_with_the_event_that_took_its_place(world):
    world.dead_letters.fail("bury", TransientError("broker away"))
    assert isinstance(await world.handle(event_work(UNKNOWN_MODEL)), Retry)
    echo = replace(UNKNOWN_MODEL, metadata=replace(UNKNOWN_MODEL.metadata, resource_version="30"))
    assert isinstance(await world.handle(event_work(echo, sequence=2)), Bury)
    assert KEY in world.dead_letters.entries


async def test_a_complaint_is_not_cleared_by_an_older_event(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    await world.handle(event_work(an_object(version="5")))
    assert KEY in world.dead_letters.entries
    assert world.words == ["dead", "stale"]


async def test_a_complaint_is_not_cleared_by_a_plan_that_complains_again(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    await world.handle(event_work(an_object({MODEL: "405"}, version="30")))
    assert "405" in world.dead_letters.entries[KEY][0]
    assert world.dead_letters.calls["clear"] == 0


def of_uid(uid, obj, sequence):
    return event_work(replace(obj, metadata=replace(obj.metadata, uid=uid)), sequence=sequence)


@pytest.mark.parametrize("early", [UNKNOWN_MODEL, an_object()], ids=["complains", "does not"])
@pytest.mark.parametrize("late", [UNKNOWN_MODEL, an_object()], ids=["complains", "does not"])
async def test_an_earlier_owner_of_the_name_has_no_say_in_its_dead_letter(world, early, late):
    for work in (of_uid("early", early, 1), of_uid("late", late, 2)):
        world.events.sequence = work.message.sequence
        await world.handle(work)
    after = dict(world.dead_letters.entries)
    assert (KEY in after) is (late is UNKNOWN_MODEL)
    again = of_uid("early", early, 1)
    assert await world.handler.handle(again) == Ack()
    assert world.dead_letters.entries == after


async def test_a_lagging_replica_that_knows_an_earlier_owner_only_holds_up_no_complaint(world):
    world.events.by_key[KEY], world.events.sequence = of_uid("early", an_object(), 1).seen, 1
    assert isinstance(await world.handler.handle(of_uid("late", UNKNOWN_MODEL, 2)), Bury)


async def test_clearing_that_fails_is_tried_again_until_it_is_done(world):
    await world.handle(event_work(UNKNOWN_MODEL))
    world.dead_letters.fail("clear", UnreachableError("broker away"))
    work = event_work(an_object(status=READY, version="30"), sequence=2)
    assert isinstance(await world.handle(work), Retry)
    assert world.dead_letters.pending == 0
    assert KEY in world.dead_letters.entries
    assert await world.handle(work) == Ack()
    assert world.dead_letters.entries == {}


# --- answers to the broker ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "obj"), [("ack", an_object()), ("terminate", UNKNOWN_MODEL)], ids=["ack", "terminate"]
)
async def test_an_answer_that_does_not_leave_is_the_callers_and_the_message_will_find_it_done(world, answer, obj):
    work = event_work(obj)
    work.message.fail(answer, UnreachableError("broker away"))
    with pytest.raises(UnreachableError):
        await world.handle(work)
    writes, entries = world.registry.writes, set(world.dead_letters.entries)
    await world.handle(event_work(obj))
    assert (world.registry.writes, set(world.dead_letters.entries)) == (writes, entries)
