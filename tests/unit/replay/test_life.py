"""The life of one object: the verdict, each reason why it is not in the registry, and what is pending."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from consumer.observation import Observation
from consumer.plan import Facts
from consumer.records import PROPERTY, Record, encode_stamp
from consumer.writeback import WriteBack
from replay.capture import Captured, Position
from replay.life.conclusion import Life, life
from replay.life.facts import Delivery, Evidence, Letter, Live, Past, Standing
from replay.life.pending import Cause
from shared.events import Event, EventType, SyncMarker
from shared.objects import ReducedObject
from tests.unit.consumer.worlds import (
    FACTS,
    KEY,
    MODEL,
    PREDECESSORS,
    READY,
    SEEN,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)

HOME = "http://registry"
LINKED = carrying(an_object(status=READY), "7")
RECORD = record_of(seen(LINKED))
EVERYWHERE = SyncMarker((), "1", 1)
IDLE = Delivery(shard=3, delivered=50, acked=50)
STOP = {"serving.kserve.io/stop": "true"}
BARE = an_object({}, status=READY)


def event(obj: ReducedObject, seq: int = 5, kind: EventType = EventType.UPDATED, digest: str = "v1:d") -> Past:
    told = Event(kind, KEY, obj.metadata.uid, 1, obj.metadata.resource_version, digest, ("1",), "c-1", SEEN)
    return Past(Captured(told, msgspec.json.encode(obj), Position(seq)))


def evidence(obj: ReducedObject = LINKED, *records: Record, state: Observation | None = None, **given: Any) -> Evidence:
    """Return what is found of an object that lives, was told by one event that is handled, and has these records."""
    state = state or seen(obj)
    standing = Standing(seen=state, home=HOME, facts=FACTS)
    found = {
        "past": (event(obj),),
        "standings": {UID: standing},
        "records": {HOME: records},
        "live": Live(state),
        "delivery": IDLE,
        "marker": EVERYWHERE,
    }
    return Evidence(key=KEY, settings=SETTINGS, **(found | given))


def gone(**given: Any) -> Evidence:
    """Return what is found of an object that was deleted, and whose end was told."""
    state = seen(LINKED, gone=True)
    found = {"state": state, "past": (event(LINKED, kind=EventType.DELETED),), "live": Live()}
    return evidence(LINKED, *given.pop("those", ()), **(found | given))


def causes(found: Life) -> list[Cause]:
    return [each.cause for section in found.sections for each in section.pending]


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


# --- why not: what nobody waits for -----------------------------------------------------------------------------------


def test_not_there_because_it_has_no_model_label():
    found = life(evidence(BARE, state=seen(BARE, models=())))
    assert found.verdict == (
        "team-a/iris is not in the registry, because it has no label modelregistry.kubeflow.org/registered-model-id"
    )
    assert (found.agrees, found.cause) == (True, Cause.NOT_INDEXED)


def test_not_there_any_more_because_the_label_is_gone_names_the_closed_record():
    closed = record_of(seen(LINKED), deployed=False)
    found = life(evidence(BARE, closed))
    assert found.verdict.endswith("what it deployed before is closed (record 7)")
    assert (found.agrees, found.cause) == (True, Cause.NOT_INDEXED)


def test_gone_after_its_label_was_taken_off_names_the_closed_record():
    state = seen(BARE, gone=True)
    closed = record_of(seen(LINKED, gone=True))
    found = life(evidence(BARE, closed, state=state, past=(event(BARE, kind=EventType.DELETED),), live=Live()))
    assert found.verdict.startswith("team-a/iris is gone, and had no label")
    assert found.verdict.endswith("what it deployed before is closed (record 7)")


def test_a_record_that_is_still_to_be_closed_is_there_until_then():
    found = life(evidence(BARE, RECORD, delivery=Delivery(shard=3, delivered=4, acked=4)))
    assert found.verdict.endswith(
        "is in the registry as record 7 (DEPLOYED), version 11, but event 5 waits to be handled"
    )


def test_never_there_because_it_was_never_labelled_before_it_went():
    state = seen(BARE, models=(), gone=True)
    found = life(evidence(BARE, state=state, past=(event(BARE, kind=EventType.DELETED),), live=Live()))
    assert found.verdict.startswith("team-a/iris is gone, and was never in the registry, because it had no label")


def test_not_there_because_nobody_knows_such_an_object():
    found = life(evidence(past=(), standings={}, records={}, live=Live()))
    assert found.verdict == (
        "team-a/iris is not in the registry, because nobody knows it: neither cluster, stream nor registry has an isvc "
        "of that name"
    )
    assert (found.agrees, found.cause, found.sections) == (False, Cause.UNKNOWN, ())


def test_not_there_because_the_capture_has_no_event_of_it():
    found = life(evidence(past=(), standings={}, records={}, live=None))
    assert "the capture has no event of an isvc of that name" in found.verdict
    assert found.cause == Cause.UNKNOWN


# --- why not: between the cluster and the stream ----------------------------------------------------------------------


def test_not_there_because_the_cluster_does_not_serve_the_kind():
    found = life(evidence(past=(), standings={}, records={}, live=Live(trouble="the cluster does not serve it")))
    assert (found.cause, found.verdict.endswith("because the cluster does not serve it")) == (Cause.NO_KIND, True)


def test_not_there_because_no_producer_has_compared_the_kind():
    found = life(evidence(past=(), marker=None))
    assert found.cause == Cause.NOT_SYNCED
    assert "no producer has ever compared the kind isvc" in found.verdict
    assert "KINDS" in found.verdict


def test_not_there_because_the_producer_does_not_select_its_namespace():
    found = life(evidence(past=(), marker=SyncMarker(("team-b", "team-c"), "1", 1)))
    assert found.cause == Cause.NOT_SELECTED
    assert "does not select namespace team-a: it compares team-b, team-c" in found.verdict


@pytest.mark.parametrize("marker", [EVERYWHERE, SyncMarker(("team-a",), "1", 1)])
def test_not_there_because_it_was_never_published(marker):
    found = life(evidence(past=(), marker=marker))
    assert (found.cause, "OBJECT_SELECTOR" in found.verdict) == (Cause.NOT_PUBLISHED, True)


def test_a_change_that_is_not_published_is_told_in_words():
    newer = replace(seen(carrying(an_object({MODEL: "1", VERSION: "12"}, status=READY), "7")), digest="v1:e")
    found = life(evidence(LINKED, RECORD, state=newer, past=(event(LINKED),)))
    assert found.cause == Cause.NOT_PUBLISHED
    assert "a change of the object is not in the stream (label model-version-id 11 -> 12)" in found.verdict


def test_a_delete_that_is_not_published_is_pending():
    found = life(evidence(LINKED, RECORD, state=seen(LINKED, gone=True), live=Live()))
    assert found.cause == Cause.NOT_PUBLISHED
    assert "it is gone from the cluster, and no event says so yet" in found.verdict
    assert causes(found) == [Cause.NOT_PUBLISHED, Cause.DIFFERS]


def test_a_delete_that_is_held_back_names_the_hold():
    found = life(evidence(LINKED, RECORD, state=seen(LINKED, gone=True), live=Live(), holds=("it is held: h1",)))
    assert (causes(found), "it is held: h1" in found.verdict) == ([Cause.HELD, Cause.DIFFERS], True)


def test_where_the_cluster_cannot_tell_nothing_is_said_of_it():
    assert life(evidence(LINKED, RECORD, live=Live(trouble="no such kind"))).agrees


# --- why not: between the stream and the registry ---------------------------------------------------------------------


def test_not_there_because_no_consumer_has_ever_run():
    found = life(evidence(delivery=Delivery(shard=3, exists=False)))
    assert found.cause == Cause.NOT_HANDLED
    assert "event 5 waits to be handled: no consumer has ever asked for the messages of shard 3" in found.verdict


def test_not_there_because_no_consumer_runs():
    found = life(evidence(delivery=Delivery(shard=3, delivered=4, acked=4, pulling=False)))
    assert found.cause == Cause.NOT_HANDLED
    assert "event 5 waits to be handled, and no consumer asks for the messages of shard 3" in found.verdict
    assert causes(found) == [Cause.NOT_HANDLED, Cause.DIFFERS]
    assert found.sections[0].pending[1].what.startswith("then will be done: create a record")


def test_not_there_because_its_event_is_still_to_come():
    found = life(evidence(delivery=Delivery(shard=3, delivered=4, acked=4)))
    assert found.verdict.endswith("because event 5 waits to be handled")


@pytest.mark.parametrize(("pulling", "words"), [(True, "it is being handled, or tried again"), (False, "does one run")])
def test_not_there_because_its_event_is_not_acknowledged(pulling, words):
    found = life(evidence(delivery=Delivery(shard=3, delivered=5, acked=4, unacked=1, pulling=pulling)))
    assert (found.cause, words in found.verdict) == (Cause.NOT_HANDLED, True)


def test_messages_of_other_objects_that_are_not_acknowledged_do_not_count():
    found = life(evidence(LINKED, RECORD, delivery=Delivery(shard=3, delivered=50, acked=5, unacked=1)))
    assert found.agrees


def test_what_was_delivered_is_handled_when_nothing_waits_for_an_acknowledgement():
    assert life(evidence(LINKED, RECORD, delivery=Delivery(shard=3, delivered=5, acked=4))).agrees


def test_an_event_that_the_capture_did_not_see_settled_is_pending():
    found = life(evidence(LINKED, RECORD, live=None, delivery=None, settled=frozenset({4})))
    assert "event 5 was not settled when the capture ended" in found.verdict
    assert life(evidence(LINKED, RECORD, live=None, delivery=None, settled=frozenset({5}))).agrees


def test_not_there_because_of_a_dead_letter_that_says_why():
    obj = an_object({MODEL: "404"})
    found = life(evidence(obj, state=seen(obj, models=("404",)), letter=Letter("said", UID, 5)))
    assert found.verdict == (
        "team-a/iris is not in the registry, because registered model 404 does not exist in the registry "
        "(dead letter of event 5)"
    )
    assert causes(found) == [Cause.DEAD_LETTER]


@pytest.mark.parametrize("letter", [None, Letter("said", "earlier", 2)], ids=["none yet", "an earlier object's"])
def test_not_there_because_it_will_be_rejected(letter):
    obj = an_object({MODEL: "abc"})
    found = life(evidence(obj, state=seen(obj, models=("abc",)), letter=letter))
    assert (found.cause, "'abc' is no id of the registry" in found.verdict) == (Cause.REJECTED, True)
    assert "dead letter" not in found.verdict


def test_what_can_never_succeed_comes_before_what_is_not_published_yet():
    obj = an_object({MODEL: "abc"})
    state = replace(seen(obj, models=("1",)), digest="v1:e")
    assert causes(life(evidence(obj, state=state, past=(event(LINKED),)))) == [Cause.REJECTED, Cause.NOT_PUBLISHED]


def test_a_dead_letter_about_the_version_leaves_the_record_where_it_is():
    obj = carrying(an_object({MODEL: "1", VERSION: "404"}), "7")
    record = record_of(seen(obj), version="")
    found = life(evidence(obj, record, letter=Letter("said", UID, 5)))
    assert found.verdict == (
        "team-a/iris is in the registry as record 7 (DEPLOYED), without a version, but model version 404 does not "
        "exist in the registry; recorded without a version (dead letter of event 5)"
    )


def test_a_dead_letter_whose_reason_is_gone_waits_for_the_sweep():
    found = life(evidence(letter=Letter("model 1 does not exist", UID, 5)))
    assert found.cause == Cause.DEAD_LETTER
    assert "(model 1 does not exist), though it could succeed now: the next sweep" in found.verdict


def test_a_dead_letter_of_an_earlier_object_says_nothing_of_this_one():
    assert life(evidence(LINKED, RECORD, letter=Letter("said", "earlier", 2))).agrees


def test_not_there_because_its_registry_is_not_allowed():
    standing = Standing(seen=seen(LINKED), no_home="annotation url names a server that is not allowed", forbidden=True)
    found = life(evidence(standings={UID: standing}, letter=Letter("said", UID, 5)))
    assert found.cause == Cause.NOT_ALLOWED
    assert "because annotation url names a server that is not allowed (dead letter of event 5)" in found.verdict


def test_not_there_because_it_is_not_clear_which_registry_it_has():
    standing = Standing(seen=seen(LINKED), no_home="several registries (a, b)")
    found = life(evidence(standings={UID: standing}))
    assert (found.cause, "it has no registry: several registries (a, b)" in found.verdict) == (Cause.NO_REGISTRY, True)


def test_whether_it_is_there_is_not_known_while_its_registry_cannot_be_read():
    found = life(evidence(records={}, unread={HOME: "no answer"}))
    assert found.verdict.startswith("whether team-a/iris is in the registry is not known, because registry")
    assert (found.cause, found.unread) == (Cause.UNREAD, (f"registry {HOME}: no answer",))


def test_not_there_though_nothing_is_under_way_is_for_the_sweep():
    found = life(evidence())
    assert found.cause == Cause.DIFFERS
    assert "no record was made of it, and nothing is under way: the next sweep" in found.verdict


def test_a_record_of_another_cluster_is_not_the_objects():
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    found = life(replace(evidence(LINKED, RECORD), settings=foreign))
    assert (found.agrees, "was written for cluster id c-1, this is c-2" in found.verdict) == (False, True)


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
