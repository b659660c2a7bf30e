"""Each reason why an object is not in the registry, from its labels to its registry."""

import pytest
from msgspec.structs import replace

from replay.life.conclusion import life
from replay.life.facts import Delivery, Letter, Live, Standing
from replay.life.pending import Cause
from shared.events import EventType, SyncMarker
from tests.unit.consumer.worlds import MODEL, READY, SETTINGS, UID, VERSION, an_object, carrying, record_of, seen
from tests.unit.replay.evidence import BARE, EVERYWHERE, HOME, LINKED, RECORD, causes, event, evidence

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
    found = life(evidence(LINKED, RECORD, live=None, delivery=None, at_hand=frozenset({5})))
    assert "event 5 was not settled when the capture ended" in found.verdict
    assert life(evidence(LINKED, RECORD, live=None, delivery=None, at_hand=frozenset({4}))).agrees


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
