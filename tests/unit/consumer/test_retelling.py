"""What a look says again, from an object's last event and the object as it stands."""

import pytest
from msgspec.structs import replace

from consumer.records import PROPERTY, encode_stamp
from consumer.retelling import Retold, is_ahead, lifted, no_older, retold
from shared.objects import Condition
from tests.unit.consumer.worlds import (
    ID,
    MODEL,
    PREFIX,
    READY,
    SETTINGS,
    VERSION,
    an_object,
    carrying,
    record_of,
    seen,
)  # fmt: skip

LAST = seen(carrying(an_object(status=READY, version="10"), "7"))
GONE = seen(LAST.obj, gone=True)
US = SETTINGS.us.cluster_id
NOISE = replace(READY, conditions=(*READY.conditions, Condition("IngressReady", "True", "other")))


def live(**changes):
    return seen(an_object(**{"status": READY, "version": "20"} | changes))


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(live(), id="the id is gone"),
        pytest.param(live(labels={MODEL: "1", VERSION: "11", ID: "8"}), id="another id"),
        pytest.param(live(status=NOISE), id="what no record tells"),
    ],
)
def test_an_object_that_asks_for_the_same_is_told_as_fresh_as_its_event_and_as_it_stands(now):
    now = replace(now, digest="v2:another release's")
    assert retold(LAST, now, PREFIX) == Retold(replace(LAST, obj=now.obj), moved_on=False)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(live(labels={MODEL: "2"}), id="another model"),
        pytest.param(live(labels={VERSION: "11"}), id="no model"),
        pytest.param(live(labels={MODEL: "1", VERSION: "12"}), id="another version"),
        pytest.param(live(status=replace(READY, url="http://other.example")), id="another url"),
        pytest.param(live(annotations={"serving.kserve.io/stop": "true"}), id="stopped"),
        pytest.param(live(annotations={f"{PREFIX}url": "https://other.example"}), id="another registry"),
    ],
)
def test_an_object_that_asks_for_something_else_by_now_is_told_as_its_event_said(now):
    assert retold(LAST, now, PREFIX) == Retold(LAST, moved_on=True)


@pytest.mark.parametrize("now", [None, live(going=True)], ids=["gone", "goes"])
def test_an_end_that_no_event_has_told_is_left_to_its_event(now):
    assert retold(LAST, now, PREFIX) is None


def test_an_end_that_an_event_told_is_said_again():
    assert retold(GONE, None, PREFIX) == Retold(GONE, moved_on=False)


def test_an_end_that_the_object_contradicts_is_not():
    assert retold(GONE, live(), PREFIX) is None


def test_an_object_that_goes_is_told_while_it_is_there_and_after():
    goes = seen(an_object(going=True))
    assert retold(goes, goes, PREFIX) == retold(goes, None, PREFIX) == Retold(goes, moved_on=False)


@pytest.mark.parametrize(
    ("stamped", "version"),
    [
        pytest.param({"resource_version": "20"}, "20", id="newer"),
        pytest.param({"resource_version": "9"}, "10", id="older"),
        pytest.param({"resource_version": "20", "epoch": 2}, "10", id="another epoch"),
        pytest.param({"resource_version": "20", "deleted": True}, "10", id="its end"),
        pytest.param({"resource_version": "20", "cluster_id": "other"}, "10", id="another cluster's"),
    ],
)
def test_what_is_sure_is_no_older_than_what_our_records_say_of_the_same_life(stamped, version):
    record = record_of(LAST)
    stamp = replace(record.stamp, **stamped)
    records = {"1": replace(record, properties={PROPERTY: encode_stamp(stamp)}), "2": replace(record, properties={})}
    assert no_older(LAST, records, US) == replace(LAST, freshness=replace(LAST.freshness, resource_version=version))


def stamped(**changes):
    record = record_of(LAST)
    return replace(record, properties={PROPERTY: encode_stamp(replace(record.stamp, **changes))})


@pytest.mark.parametrize(
    ("changes", "known_epoch", "ahead"),
    [
        pytest.param({"epoch": 2}, 0, True, id="a higher epoch"),
        pytest.param({"epoch": 2}, 1, True, id="a higher epoch than the stream's"),
        pytest.param({"epoch": 2}, 2, False, id="an epoch that the stream knows"),
        pytest.param({"epoch": 0}, 0, False, id="a lower epoch"),
        pytest.param({"epoch": 0, "deleted": True}, 0, False, id="an end in a lower epoch"),
        pytest.param({"deleted": True}, 1, True, id="its end"),
        pytest.param({"resource_version": "99"}, 0, False, id="a later state"),
        pytest.param({"epoch": 2, "cluster_id": "other"}, 0, False, id="another cluster's"),
    ],
)
def test_a_record_is_ahead_when_no_event_of_the_stream_can_be_newer(changes, known_epoch, ahead):
    assert is_ahead(LAST, stamped(**changes), US, known_epoch) is ahead


def test_the_end_of_an_object_that_has_ended_is_not_ahead():
    assert not is_ahead(GONE, stamped(deleted=True), US)


def test_a_record_without_our_property_is_not_ahead():
    assert not is_ahead(LAST, replace(record_of(LAST), properties={}), US)


def test_what_is_lifted_is_as_fresh_as_what_was_seen_and_says_what_it_said():
    ahead = stamped(epoch=2, resource_version="99", deleted=True, ready=True)
    assert lifted(LAST, ahead) == replace(ahead, properties=stamped(ready=True).properties)
