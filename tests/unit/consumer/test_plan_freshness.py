"""Which state `plan` believes: none that is older than the record's, and nothing after the end."""

from msgspec.structs import replace

from consumer.plan import is_stale, plan
from tests.unit.consumer.planning import LINKED, RECORD, decided, kinds, stamp_in
from tests.unit.consumer.worlds import (
    FACTS,
    MODEL,
    PREDECESSORS,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    carrying,
    performed,
    record_of,
    seen,
)


def test_an_older_state_does_nothing():
    assert decided(seen(an_object({MODEL: "2"}, version="9"), models=("1", "2")), RECORD) == ()


def test_an_older_state_does_nothing_even_if_only_a_closed_record_is_newer():
    closed = replace(record_of(seen(an_object(version="30"))), deployed=False)
    assert is_stale(seen(an_object({MODEL: "2"}, version="20"), models=("1", "2")), {"1": closed}, SETTINGS)


def test_another_clusters_record_says_nothing_of_freshness_however_new_it_is():
    foreign = replace(SETTINGS, us=replace(SETTINGS.us, cluster_id="c-2"))
    newer = record_of(seen(an_object(version="99"), epoch=9))
    assert is_stale(seen(), {"1": newer}, SETTINGS)
    assert not is_stale(seen(), {"1": newer}, foreign)
    assert kinds(decided(seen(), newer, settings=foreign)) == ["Reject"]


def test_nothing_opens_a_record_after_the_deletion():
    ended = record_of(seen(gone=True))
    assert decided(seen(an_object(version="99")), ended) == ()


def test_a_deletion_without_a_version_of_its_own_still_ends_the_record():
    (update,) = decided(seen(LINKED, gone=True), RECORD)
    assert (update.deployed, stamp_in(update).deleted) == (False, True)


def test_a_new_epoch_wins_over_a_higher_version():
    obj = carrying(an_object({MODEL: "1", VERSION: "12"}, version="2"), "7")
    assert kinds(decided(seen(obj, epoch=2), RECORD)) == ["UpdateRecord"]


def test_the_end_of_an_object_without_label_is_written_once_more_so_that_no_late_event_opens_it():
    closed = decided(seen(an_object({}, version="20")), RECORD)[0]
    _, records = performed(closed, LINKED, {"1": RECORD}, 8)
    (last,) = plan(seen(an_object({}, version="21"), gone=True), records, FACTS, SETTINGS)
    _, records = performed(last, LINKED, records, 8)
    assert plan(seen(an_object(version="30")), records, FACTS, SETTINGS) == ()


def test_a_closed_record_is_not_written_again():
    closed = decided(seen(an_object({}, version="20")), RECORD)[0]
    _, records = performed(closed, LINKED, {"1": RECORD}, 8)
    assert plan(seen(an_object({}, version="21")), records, FACTS, SETTINGS) == ()


def test_the_deletion_of_an_object_does_not_write_its_former_models_record_again():
    former = replace(record_of(seen(an_object(version="5"))), deployed=False)
    present = replace(
        record_of(seen(an_object({MODEL: "2", VERSION: "21"}, version="10"))), id="8", name=f"iris/{UID}/2"
    )
    gone = seen(an_object({MODEL: "2", VERSION: "21"}, version="20"), models=("1", "2"), gone=True)
    assert [action.id for action in decided(gone, former, present)] == ["8"]


def test_an_earlier_controllers_closed_record_is_stamped_so_that_no_late_event_opens_it():
    (update,) = decided(seen(carrying(an_object({}), "7")), replace(PREDECESSORS, deployed=False))
    assert stamp_in(update).resource_version == "10"
