"""The life of one object: the verdict, and what is pending; why it is not there: test_life_reasons.py."""

from pathlib import Path

from msgspec.structs import replace

from consumer.plan import Facts
from consumer.records import PROPERTY, Record, encode_stamp
from consumer.writeback import WriteBack
from replay.life.conclusion import life
from replay.life.facts import Delivery, Live, Standing
from replay.life.pending import Cause
from shared.events import EventType
from shared.objects import ReducedObject
from tests.unit.consumer.worlds import (
    FACTS,
    MODEL,
    PREDECESSORS,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)
from tests.unit.replay.evidence import HOME, IDLE, LINKED, RECORD, STOP, event, evidence, gone

# --- it is there ------------------------------------------------------------------------------------------------------


def test_a_record_that_agrees_is_up_to_date():
    found = life(evidence(LINKED, RECORD))
    assert found.verdict == "team-a/iris is in the registry as record 7 (DEPLOYED), version 11, and up to date"
    assert (found.agrees, found.cause) == (True, "")


def test_a_record_without_a_version_says_so():
    obj = carrying(an_object({MODEL: "1"}), "7")
    found = life(evidence(obj, record_of(seen(obj))))
    assert "record 7 (DEPLOYED), without a version, and up to date" in found.verdict


def test_a_stopped_object_is_undeployed_because_it_is_stopped():
    obj = carrying(an_object(annotations=STOP), "7")
    found = life(evidence(obj, record_of(seen(obj))))
    assert "as record 7 (UNDEPLOYED: it is stopped), version 11, and up to date" in found.verdict
    assert found.agrees


def test_a_record_that_is_still_deployed_is_not_said_to_be_so_because_of_a_stop():
    obj = carrying(an_object(annotations=STOP), "7")
    found = life(evidence(obj, RECORD, delivery=Delivery(shard=3, delivered=4, acked=4)))
    assert "as record 7 (DEPLOYED), version 11, but event 5 waits to be handled" in found.verdict


def test_a_deleted_object_is_gone_and_its_record_closed():
    ended = record_of(seen(LINKED, gone=True))
    found = life(gone(those=(ended,)))
    assert found.verdict == "team-a/iris is gone; its record 7 is UNDEPLOYED, version 11, and up to date"
    assert found.agrees


def test_a_closed_record_of_an_object_that_nothing_else_tells_of_is_no_trouble():
    ended = record_of(seen(LINKED, gone=True))
    found = life(evidence(LINKED, ended, past=(), standings={}, live=Live()))
    assert (found.agrees, found.verdict.endswith("where its records are UNDEPLOYED")) == (True, True)


def test_a_deployed_record_of_an_object_that_nothing_else_tells_of_is_wrong():
    found = life(evidence(LINKED, RECORD, past=(), standings={}, live=Live()))
    assert (found.agrees, found.cause) == (False, Cause.DIFFERS)
    assert "record 7 in http://registry is not UNDEPLOYED" in found.verdict


# --- what is there and not right --------------------------------------------------------------------------------------


def test_a_record_that_was_edited_by_hand_differs():
    found = life(evidence(LINKED, replace(RECORD, deployed=False)))
    assert found.cause == Cause.DIFFERS
    assert "but registry and object differ (wrong state), the next sweep mends that" in found.verdict


def test_a_record_of_a_forgotten_model_that_is_still_deployed_is_told():
    left = replace(record_of(seen(an_object({MODEL: "2"})), number="9"), model_id="2")
    found = life(evidence(LINKED, RECORD, left))
    assert (found.agrees, "left behind" in found.verdict) == (False, True)


def test_a_record_that_is_left_in_another_registry_is_told():
    found = life(evidence(records={HOME: (RECORD,), "http://former": (replace(RECORD, id="3"),)}))
    assert (found.agrees, "(in http://former)" in found.verdict) == (False, True)


def test_an_earlier_controllers_record_waits_for_the_next_event():
    found = life(evidence(LINKED, PREDECESSORS))
    assert found.cause == Cause.DIFFERS
    assert "record 7 was not written by isvc-sync, and is taken over at the object's next event" in found.verdict
    assert found.sections[0].records[0].written_from == ""


def test_the_registry_at_the_end_of_a_capture_is_compared():
    found = life(evidence(LINKED, replace(RECORD, deployed=False), live=None, delivery=None))
    assert "the registry at the end of the capture differs (wrong state)" in found.verdict


def test_a_write_back_that_waits_tells_its_cost_and_why():
    obj = an_object(status=READY)
    found = life(evidence(obj, record_of(seen(obj))))
    assert found.cause == Cause.DEFERRED
    assert found.verdict == (
        "team-a/iris is in the registry as record 7 (DEPLOYED), version 11, and up to date, but writing its id to the "
        "object waits: that would now cost restart (serving pods would be replaced), and WRITE_BACK=safe does not "
        "allow that (the object does not carry the record's id)"
    )


def test_a_write_back_that_is_switched_off_is_not_pending():
    obj = an_object(status=READY)
    found = evidence(obj, record_of(seen(obj)))
    assert life(replace(found, settings=replace(SETTINGS, write_back=WriteBack.OFF))).agrees


# --- several objects of one name --------------------------------------------------------------------------------------


def reborn(uid: str, version: str = "30") -> ReducedObject:
    obj = an_object(version=version)
    return replace(obj, metadata=replace(obj.metadata, uid=uid))


def test_several_uids_are_sections_of_their_own_the_newest_first():
    second = reborn("6b2f")
    state = replace(seen(second), uid="6b2f")
    ended = record_of(seen(LINKED, gone=True))
    found = life(
        evidence(
            LINKED,
            ended,
            past=(event(LINKED, 4), event(LINKED, 5, EventType.DELETED), event(second, 6, EventType.CREATED)),
            standings={
                UID: Standing(seen=seen(LINKED, gone=True), home=HOME, facts=FACTS),
                "6b2f": Standing(seen=state, home=HOME, facts=FACTS),
            },
            live=Live(state),
        )
    )
    assert [(each.uid, each.state) for each in found.sections] == [("6b2f", "lives"), (UID, "is gone")]
    assert [len(each.moments) for each in found.sections] == [1, 2]
    assert [[held.id for held in each.records] for each in found.sections] == [[], ["7"]]


def test_objects_that_only_records_tell_of_are_in_the_order_of_their_deployment():
    def closed(uid: str, number: str, deployed_at: str) -> Record:
        stamp = replace(record_of(seen(LINKED, gone=True)).stamp, uid=uid, deployed_at=deployed_at)
        return replace(RECORD, id=number, deployed=number == "8", properties={PROPERTY: encode_stamp(stamp)})

    records = (closed("u-1", "7", "2026-01-01T00:00:00Z"), closed("u-2", "8", "2026-02-01T00:00:00Z"))
    found = life(evidence(LINKED, *records, past=(), standings={}, live=Live()))
    assert [(each.uid, len(each.pending)) for each in found.sections] == [("u-2", 1), ("u-1", 0)]


def test_trouble_with_an_earlier_object_of_the_name_is_in_the_verdict():
    second = carrying(reborn("6b2f"), "8")
    state = replace(seen(second), uid="6b2f")
    record = replace(record_of(seen(second)), id="8", external_id="kserve:6b2f/1", name="iris/6b2f")
    record = replace(record, properties=record_of(state).properties)
    found = life(
        evidence(
            LINKED,
            RECORD,
            record,
            past=(event(LINKED, 4), event(LINKED, 5, EventType.DELETED), event(second, 6, EventType.CREATED)),
            standings={
                UID: Standing(seen=seen(LINKED, gone=True), home=HOME, facts=FACTS),
                "6b2f": Standing(seen=state, home=HOME, facts=FACTS),
            },
            live=Live(state),
            delivery=replace(IDLE, delivered=60, acked=60),
        )
    )
    assert found.verdict.endswith(
        "record 8 (DEPLOYED), version 11, and up to date; something is pending for 1 earlier object of that name"
    )
    assert (found.agrees, found.cause) == (False, Cause.DIFFERS)


# --- the events -------------------------------------------------------------------------------------------------------


def test_each_event_says_what_it_changed():
    later = replace(LINKED, metadata=replace(LINKED.metadata, labels=LINKED.metadata.labels | {VERSION: "12"}))
    found = life(evidence(later, past=(event(LINKED, 4, EventType.CREATED), event(later, 5), event(later, 6))))
    first, second, third = found.sections[0].moments
    assert "label registered-model-id 1" in first.changes
    assert second.changes == ("label model-version-id 11 -> 12",)
    assert third.changes == ("nothing that is told here",)


def test_facts_that_nobody_asked_for_are_not_needed():
    standing = Standing(seen=seen(LINKED), home=HOME, facts=Facts())
    assert life(evidence(LINKED, RECORD, standings={UID: standing})).agrees


def test_the_page_names_every_cause():
    page = (Path(__file__).parents[3] / "docs" / "replay-explain.md").read_text()
    assert [cause for cause in Cause if f"`{cause}`" not in page] == []
