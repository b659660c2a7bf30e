"""What the sweep finds: each kind of difference, and what it must leave alone."""

import pytest
from msgspec.structs import replace

from consumer.freshness import Freshness
from consumer.looks import RecordRef, decode, encode
from consumer.plan import Facts
from consumer.records import PROPERTY, encode_stamp, external_id, string_property
from consumer.sweep.compare import Comparison, Difference, Reason, triage
from consumer.sweep.shelf import Shelf
from consumer.writeback import WriteBack
from shared.events import SyncMarker
from shared.objects import Kind, ObjectKey
from tests.unit.consumer.worlds import (
    FACTS,
    ID,
    KEY,
    MODEL,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)

EVERYWHERE = {kind: SyncMarker((), "1", 1) for kind in Kind}
IN_SYNC = seen(carrying(an_object(), "7"))
GONE = seen(carrying(an_object(), "7"), gone=True)
RECORD = record_of(IN_SYNC)


def shelf(*records) -> Shelf:
    filled = Shelf(SETTINGS.us.cluster_id)
    for record in records:
        filled.add(record)
    return filled


def comparison(*records, elsewhere=(), markers=EVERYWHERE, dead=frozenset(), settings=SETTINGS) -> Comparison:
    return Comparison({"a": shelf(*records), "b": shelf(*elsewhere)}, markers, dead, settings)


def judged(observation, *records, home="a", facts=FACTS, **others) -> Difference | None:
    return comparison(*records, **others).judge(observation, home, facts)


def edited(record, **changes):
    """Return a record whose stamp was written by somebody else, or from something else."""
    stamp = record.stamp
    assert stamp is not None
    text = record.properties[PROPERTY]["string_value"]
    for name, value in changes.items():
        before = (
            f'"{name}":"{getattr(stamp, {"clusterId": "cluster_id", "resourceVersion": "resource_version"}[name])}"'
        )
        assert before in text
        text = text.replace(before, f'"{name}":"{value}"')
    return replace(
        record, properties=record.properties | {PROPERTY: record.properties[PROPERTY] | {"string_value": text}}
    )


# --- an object that has an event ------------------------------------------------------------------------------------


def test_an_object_that_agrees_with_its_record_is_no_difference():
    assert judged(IN_SYNC, RECORD) is None


@pytest.mark.parametrize(
    ("observation", "records", "reason", "undeploys"),
    [
        pytest.param(GONE, [RECORD], Reason.GONE, True, id="the UNDEPLOYED was lost"),
        pytest.param(IN_SYNC, [replace(RECORD, deployed=False)], Reason.STATE, False, id="undeployed by hand"),
        pytest.param(IN_SYNC, [replace(RECORD, runtime="other")], Reason.CONTENT, False, id="runtime changed by hand"),
        pytest.param(IN_SYNC, [], Reason.MISSING, False, id="the registry was reset"),
        pytest.param(seen(), [replace(record_of(seen()), id="8")], Reason.ID, False, id="the id may be written now"),
    ],
)
def test_each_difference_has_its_reason(observation, records, reason, undeploys):
    found = judged(observation, *records)
    assert (found.key, found.uid, found.reason, found.undeploys) == (KEY, UID, reason, undeploys)
    assert found.is_drift


def test_a_write_back_that_waits_is_found_but_is_no_drift():
    found = judged(seen(), replace(record_of(seen())), settings=replace(SETTINGS, write_back=WriteBack.FREE))
    assert (found.reason, found.is_drift) == (Reason.DEFERRED, False)


def test_a_lost_stop_is_an_undeployment():
    stopped = seen(an_object({MODEL: "1", VERSION: "11", ID: "7"}, annotations={"serving.kserve.io/stop": "true"}))
    found = judged(stopped, RECORD)
    assert (found.reason, found.undeploys) == (Reason.STATE, True)


def test_a_dead_letter_is_looked_at_only_when_its_model_has_appeared():
    waiting = seen(an_object({MODEL: "404"}), models=("404",))
    dead = frozenset({KEY})
    assert judged(waiting, dead=dead) is None
    assert judged(waiting, dead=dead, facts=Facts({"404": True})).reason is Reason.DEAD_LETTER


def test_an_object_without_model_label_ever_is_no_difference():
    assert judged(seen(an_object({}), models=()), home=None) is None


def test_a_record_written_from_a_later_look_is_compared_all_the_same():
    later = edited(RECORD, resourceVersion="99")
    assert judged(IN_SYNC, later) is None
    assert judged(IN_SYNC, replace(later, deployed=False)).reason is Reason.STATE


LATER = seen(carrying(an_object({MODEL: "2", VERSION: "21"}), "8"), models=("1", "2"))
EDITED = replace(record_of(LATER, number="8"), name=f"iris/{UID}/2", external_id="bar")


def test_the_record_of_a_later_model_whose_external_id_was_edited_is_changed_and_not_made_again():
    found = judged(LATER, EDITED, dead=frozenset({KEY}))
    assert found.repairs == ("change the record: the record says otherwise in externalId",)
    assert judged(LATER, replace(EDITED, external_id=external_id(UID, "2"))) is None


def test_the_record_of_a_later_model_whose_external_id_was_edited_is_undeployed_when_its_object_is_gone():
    found = judged(replace(LATER, freshness=replace(LATER.freshness, deleted=True)), EDITED)
    assert (found.reason, found.undeploys) == (Reason.GONE, True)


def test_the_record_of_a_later_model_that_says_nothing_of_itself_but_its_name_is_left_alone():
    assert judged(LATER, replace(EDITED, properties={})) is None


# --- records that the object does not lead to -----------------------------------------------------------------------


@pytest.mark.parametrize("home", ["a", None], ids=["another one", "none is allowed"])
def test_a_record_in_a_registry_that_is_not_the_objects_is_named(home):
    own = [RECORD] if home else []
    found = judged(IN_SYNC, *own, home=home, elsewhere=[replace(RECORD, id="9", runtime="old")])
    assert (found.reason, found.undeploys, found.refs) == (Reason.LEFT, True, (RecordRef("b", UID, "1"),))


def test_one_registry_under_two_names_is_no_difference():
    assert judged(IN_SYNC, RECORD, elsewhere=[RECORD]) is None


def test_the_record_of_a_model_that_the_stream_has_forgotten_is_named():
    unlabelled = seen(an_object({}), models=())
    found = judged(unlabelled, RECORD, home=None)
    assert (found.undeploys, found.refs) == (True, (RecordRef("a", UID, "1"),))
    relabelled = seen(an_object({MODEL: "2", VERSION: "21", ID: "8"}), models=("2",))
    other = replace(record_of(relabelled), id="8", name=f"iris/{UID}/2")
    found = judged(relabelled, RECORD, other)
    assert (found.undeploys, found.refs) == (True, (RecordRef("a", UID, "1"),))


def test_the_deployed_record_of_an_object_without_event_is_a_stray():
    compared = comparison(RECORD)
    [stray] = compared.strays()
    assert (stray.key, stray.uid, stray.reason) == (KEY, UID, Reason.UNKNOWN)
    assert (stray.undeploys, stray.refs) == (True, (RecordRef("a", UID, "1"),))


def test_an_undeployed_record_is_no_stray():
    assert comparison(replace(RECORD, deployed=False)).strays() == []


@pytest.mark.parametrize("uid", [UID, "another"], ids=["itself", "the next one of its name"])
def test_an_object_that_cannot_be_judged_now_leaves_no_stray(uid):
    compared = comparison(RECORD)
    compared.skip(KEY, uid)
    assert compared.strays() == []


def test_the_former_owner_of_a_name_is_a_stray():
    compared = comparison(RECORD)
    assert compared.judge(replace(seen(an_object({}), models=()), uid="next"), None, Facts()) is None
    assert [stray.uid for stray in compared.strays()] == [UID]


# --- records that no event reaches any more -------------------------------------------------------------------------


def stamped(record=RECORD, **changes):
    """Return a record with something else in its stamp."""
    return replace(record, properties=record.properties | {PROPERTY: encode_stamp(replace(record.stamp, **changes))})


@pytest.mark.parametrize("record", [stamped(epoch=2), stamped(deleted=True)], ids=["epoch", "end"])
def test_a_record_that_is_ahead_of_the_stream_is_named_though_it_says_the_same(record):
    found = judged(IN_SYNC, record)
    assert (found.reason, found.undeploys, found.is_drift) == (Reason.AHEAD, False, True)
    assert found.refs == (RecordRef("a", UID, "1"),)
    assert found.repairs[0].startswith("lift the record")


def test_what_else_is_wrong_with_a_record_that_is_ahead_is_told_and_an_undeployment_is_one():
    found = judged(GONE, stamped(epoch=2))
    assert (found.reason, found.undeploys) == (Reason.AHEAD, True)
    assert [each.split(":")[0] for each in found.repairs] == ["lift the record", "undeploy the record"]
    later = seen(carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7"))
    assert "modelVersionId" in judged(later, stamped(epoch=2)).repairs[1]


def test_the_closed_record_of_a_former_model_that_is_ahead_is_lifted_too():
    """Every record of a uid speaks for it, closed ones too: it would hold up the one that is right."""
    both = seen(carrying(an_object(), "7"), models=("2", "1"))
    former = stamped(record_of(both, number="5"), epoch=2)
    former = replace(former, deployed=False, model_id="2", external_id=external_id(UID, "2"), name="former")
    assert judged(both, RECORD, former).refs == (RecordRef("a", UID, "2"),)


@pytest.mark.parametrize(
    ("record", "markers"),
    [
        pytest.param(stamped(epoch=0), EVERYWHERE, id="a lower epoch is old news"),
        pytest.param(stamped(resource_version="99"), EVERYWHERE, id="a later state of the same epoch"),
        pytest.param(
            stamped(epoch=2), {kind: SyncMarker((), "1", 2) for kind in Kind}, id="the stream knows the epoch"
        ),
        pytest.param(stamped(epoch=2), {}, id="no marker"),
        pytest.param(stamped(epoch=2), {Kind.ISVC: SyncMarker(("team-b",), "1", 1)}, id="marker of other namespaces"),
        pytest.param(stamped(epoch=2, cluster_id="c-2"), EVERYWHERE, id="another cluster's"),
    ],
)
def test_a_record_that_an_event_may_still_reach_is_not_ahead(record, markers):
    assert judged(IN_SYNC, record, markers=markers) is None


def test_an_end_within_the_epoch_of_an_object_that_has_ended_is_no_difference():
    assert judged(GONE, record_of(GONE)) is None


def test_a_record_in_a_former_registry_is_closed_though_it_is_ahead():
    found = judged(IN_SYNC, RECORD, elsewhere=[replace(stamped(epoch=2), id="9", runtime="old")])
    assert (found.reason, found.undeploys, found.refs) == (Reason.LEFT, True, (RecordRef("b", UID, "1"),))


# --- what is never touched ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(edited(RECORD, clusterId="c-2"), id="another cluster"),
        pytest.param(replace(RECORD, properties={}), id="no cluster"),
        pytest.param(replace(RECORD, properties={PROPERTY: string_property("{garbage")}), id="unreadable"),
    ],
)
@pytest.mark.parametrize("observation", [IN_SYNC, GONE], ids=["alive", "gone"])
def test_a_record_of_another_cluster_or_none_is_never_touched(observation, record):
    wrong = replace(record, runtime="other")
    assert judged(observation, wrong) is None
    assert judged(observation, record_of(observation), elsewhere=[wrong]) is None
    assert comparison(wrong).strays() == []
    assert comparison(wrong).deployed() == {}


# --- marker and hold ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "confirmed"),
    [
        pytest.param(None, False, id="none"),
        pytest.param(SyncMarker((), "1", 1), True, id="all namespaces"),
        pytest.param(SyncMarker(("team-a",), "1", 1), True, id="this one"),
        pytest.param(SyncMarker(("team-b",), "1", 1), False, id="others"),
    ],
)
def test_only_a_marker_for_kind_and_namespace_confirms_an_undeployment(marker, confirmed):
    markers = {Kind.LLMISVC: SyncMarker((), "1", 1)} | ({Kind.ISVC: marker} if marker else {})
    [stray] = comparison(RECORD, markers=markers).strays()
    gone = judged(GONE, RECORD, markers=markers)
    found = triage([stray, gone], {Kind.ISVC: 100})
    assert (stray.confirmed, gone.confirmed) == (confirmed, confirmed)
    assert (found.looks, found.waiting) == (((stray, gone), ()) if confirmed else ((), (stray, gone)))


def undeployments(count: int, kind: Kind = Kind.ISVC) -> list[Difference]:
    return [
        Difference(ObjectKey(kind, "ns", f"o{number}"), f"u{number}", Reason.GONE, (), undeploys=True)
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "deployed", "held"), [(5, 5, 0), (6, 5, 6), (20, 100, 0), (21, 100, 21), (21, 104, 21)]
)
def test_more_than_five_and_more_than_a_fifth_are_held(count, deployed, held):
    found = triage(undeployments(count), {Kind.ISVC: deployed})
    assert (len(found.held), len(found.looks)) == (held, count - held)


def test_a_hold_keeps_back_undeployments_of_its_kind_and_nothing_else():
    repair = Difference(KEY, UID, Reason.STATE, ())
    of_another_kind = undeployments(1, Kind.LLMISVC)
    found = triage([*undeployments(9), repair, *of_another_kind], {})
    assert (len(found.held), found.looks) == (9, (repair, *of_another_kind))
    assert found.held_of(Kind.LLMISVC) == frozenset()


def test_what_a_person_approved_goes_and_what_came_later_is_counted_alone():
    those = undeployments(12)
    approved = triage(those[:9], {}).held_of(Kind.ISVC)
    found = triage(those, {}, approved)
    assert (list(found.looks), found.held) == ([*those[:9], *those[9:]], ())
    assert len(triage(undeployments(15), {}, approved).held) == 6


def test_an_approval_does_not_replace_the_marker():
    unconfirmed = [replace(each, confirmed=False) for each in undeployments(9)]
    approved = triage(undeployments(9), {}).held_of(Kind.ISVC)
    assert triage(unconfirmed, {}, approved).looks == ()


# --- the look -------------------------------------------------------------------------------------------------------


def test_a_look_carries_the_records_that_it_names():
    refs = (RecordRef("http://r.example:8080/x, y", "u", "2"), RecordRef("models/registry", UID, "1"))
    headers = encode(refs)
    assert set(decode(headers)) == set(refs)
    assert headers["isvc-records"].endswith(external_id(UID, "1"))
    assert encode(()) == {}


@pytest.mark.parametrize("text", ["", "x", "a kserve:", "a kserve:u", "a other:u/1", " kserve:u/1", "a kserve:/1"])
def test_what_a_look_says_and_nobody_can_read_is_left_out(text):
    assert decode({"isvc-records": f"{text},a kserve:u/1"}) == (RecordRef("a", "u", "1"),)


def test_freshness_of_another_epoch_stays_as_it_is():
    older_epoch = replace(IN_SYNC, freshness=Freshness(0, "10"))
    assert judged(older_epoch, replace(RECORD, deployed=False)) is None
