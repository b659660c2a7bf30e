"""What our property says at each turn of an object's life: times, history, and what does not count as a difference."""

import msgspec
import pytest
from msgspec.structs import replace

from consumer.freshness import Freshness
from consumer.observation import PassedVersion, want
from consumer.records import HISTORY_MAX, PROPERTY, Record, Stamp, VersionChange, encode_stamp
from consumer.stamps import agree, closing_stamp, stamp_for
from shared.objects import ModelStatus
from tests.unit.consumer.worlds import (
    BORN,
    MODEL,
    PREFIX,
    READY,
    SETTINGS,
    UID,
    VERSION,
    an_object,
    record_of,
    seen,
)  # fmt: skip

US = SETTINGS.us
STOP = {"serving.kserve.io/stop": "true"}


def state(version="11", *, resource_version="10", time="t10", stopped=False, passed=(), gone=False, **others):
    labels = {MODEL: "1"} | ({VERSION: version} if version else {})
    obj = an_object(labels, annotations=STOP if stopped else None, version=resource_version, **others)
    return replace(seen(obj, gone=gone), time=time, passed=passed)


def stamp_of(observation, record=None):
    wanted = want(observation, PREFIX)
    return stamp_for(observation, wanted, wanted.version, record, US)


def recorded(observation, record=None) -> Record:
    """Return the record after a plan for that observation."""
    before = record or record_of(observation)
    written = encode_stamp(stamp_of(observation, record))
    return replace(before, deployed=want(observation, PREFIX).deployed, properties={PROPERTY: written})


def story(*observations) -> Stamp:
    record = None
    for each in observations:
        record = recorded(each, record)
    return record.stamp


def test_a_stamp_says_whose_object_it_is_and_what_it_was_written_from():
    stamp = stamp_of(state())
    assert (stamp.cluster, stamp.cluster_id) == ("prod-a", "c-1")
    assert (stamp.kind, stamp.namespace, stamp.name, stamp.uid) == ("isvc", "team-a", "iris", UID)
    assert (stamp.epoch, stamp.resource_version, stamp.digest, stamp.generation) == (1, "10", "v1:d", 1)
    assert (stamp.model_version, stamp.model_format, stamp.storage_uri) == ("11", "sklearn", "s3://models/iris")
    assert not stamp.deleted


@pytest.mark.parametrize("transition", ["BlockedByFailedLoad", "InvalidSpec", "UpToDate"])
def test_readiness_and_load_failure_are_said(transition):
    status = replace(READY, model_status=ModelStatus(transition))
    stamp = stamp_of(state(status=status))
    assert stamp.ready
    assert stamp.load_failure == (transition if transition != "UpToDate" else "")


def test_a_deployment_begins_with_the_creation_of_the_object():
    assert stamp_of(state()).deployed_at == BORN
    assert stamp_of(state()).undeployed_at == ""


def test_an_object_that_was_created_stopped_has_not_been_deployed():
    stamp = stamp_of(state(stopped=True))
    assert (stamp.deployed_at, stamp.undeployed_at) == ("", "t10")


def test_a_stop_ends_it_and_a_resume_begins_anew():
    stopped = story(state(), state(stopped=True, resource_version="20", time="t20"))
    resumed = story(state(), state(stopped=True, resource_version="20", time="t20"), state(time="t30"))
    assert (stopped.deployed_at, stopped.undeployed_at) == (BORN, "t20")
    assert (resumed.deployed_at, resumed.undeployed_at) == ("t30", "")


def test_the_end_is_said_once():
    stamp = story(state(), state(stopped=True, time="t20"), state(gone=True, time="t40"))
    assert (stamp.deployed_at, stamp.undeployed_at, stamp.deleted) == (BORN, "t20", True)


def test_the_end_of_a_deleted_object_is_its_own_deletion_time_where_known():
    assert story(state(), state(going=True, time="t20")).undeployed_at == "2026-11-30T11:00:00Z"
    assert story(state(), state(gone=True, time="t20")).undeployed_at == "t20"


def test_an_object_whose_end_is_all_we_saw_was_deployed_from_its_creation():
    stamp = stamp_of(state(gone=True, time="t20"))
    assert (stamp.deployed_at, stamp.undeployed_at) == (BORN, "t20")


def test_the_history_lists_each_change_of_version_once():
    stamp = story(
        state("11"),
        state("11", resource_version="11", time="t11"),
        state("12", resource_version="12", time="t12"),
        state("", resource_version="13", time="t13"),
        state("12", resource_version="14", time="t14"),
    )
    assert stamp.history == (
        VersionChange("11", "10", "t10"),
        VersionChange("12", "12", "t12"),
        VersionChange("", "13", "t13"),
        VersionChange("12", "14", "t14"),
    )


def test_no_version_at_all_is_no_change():
    assert stamp_of(state("")).history == ()


def passed(version, resource_version, model="1"):
    return PassedVersion(model, version, resource_version, f"t{resource_version}", 1)


def test_passed_versions_come_first():
    stamp = stamp_of(state("11", passed=(passed("11", "7"), passed("12", "8"))))
    assert [change.version for change in stamp.history] == ["11", "12", "11"]
    assert [change.resource_version for change in stamp.history] == ["7", "8", "10"]


def test_a_passed_version_that_is_no_news_is_left_out():
    stamp = story(state("11", resource_version="7"), state("11", passed=(passed("11", "8"),)))
    assert stamp.history == (VersionChange("11", "7", "t10"),)


def test_a_try_whose_answer_was_lost_does_not_tell_its_versions_twice():
    again = state("12", resource_version="20", passed=(passed("11", "15"), passed("12", "16"), passed("11", "17")))
    record = recorded(again, recorded(state("12")))
    assert agree(record.stamp, stamp_of(again, record))


def test_versions_of_an_earlier_epoch_are_not_told_twice():
    record = recorded(state("12", resource_version="16"))
    seen_again = tuple(replace(passed(version, number), epoch=1) for version, number in (("11", "15"), ("12", "16")))
    restored = state("12", resource_version="5", passed=seen_again)
    restored = replace(restored, freshness=replace(restored.freshness, epoch=2))
    assert [change.version for change in stamp_of(restored, record).history] == ["12"]


def test_a_history_that_is_too_long_loses_its_oldest_part_and_says_how_much():
    many = tuple(passed(str(11 + number), str(100 + number)) for number in range(HISTORY_MAX + 5))
    stamp = stamp_of(state("11", resource_version="999", passed=many))
    assert len(stamp.history) == HISTORY_MAX
    assert (stamp.history_cut, stamp.history[-1].version, stamp.history[0].version) == (6, "11", "17")
    record = recorded(state("11", resource_version="999", passed=many))
    more = stamp_of(state("12", resource_version="1000"), record)
    assert (more.history_cut, len(more.history)) == (7, HISTORY_MAX)


def told(stamp):
    """Return what the history says: version, since, until."""
    return [(change.version, change.time, change.until) for change in stamp.history]


def test_a_version_that_ended_with_a_stop_is_told_until_then_when_another_one_returns():
    stamp = story(state("11", time="t10"), state("11", time="t15", stopped=True), state("12", time="t20"))
    assert told(stamp) == [("11", "t10", "t15"), ("12", "t20", "")]


def test_a_label_that_changes_while_stopped_is_deployed_from_the_return_on():
    stopped = (state("11", time="t10"), state("11", time="t15", stopped=True), state("12", time="t17", stopped=True))
    assert told(story(*stopped, state("12", time="t20"))) == [("11", "t10", "t15"), ("12", "t20", "")]
    passed_by = told(story(*stopped, state("13", time="t18", stopped=True), state("13", time="t20")))
    assert passed_by == [("11", "t10", "t15"), ("12", "t17", "t17"), ("13", "t20", "")]


def test_what_was_created_stopped_is_deployed_from_its_start_on():
    assert told(story(state("11", time="t10", stopped=True), state("11", time="t15"))) == [("11", "t15", "")]


def test_a_return_with_the_same_version_goes_on_with_it():
    stamp = story(state("11", time="t10"), state("11", time="t15", stopped=True), state("11", time="t20"))
    assert told(stamp) == [("11", "t10", "")]


def test_a_deployment_without_a_version_is_told_when_it_returns():
    before = (state("", time="t10"), state("", time="t15", stopped=True))
    assert told(story(*before, state("", time="t20"))) == [("", BORN, "")]
    assert told(story(*before, state("11", time="t20"))) == [("", BORN, "t15"), ("11", "t20", "")]


def test_while_it_is_stopped_nothing_of_its_history_changes():
    stopped = (state("11", time="t10"), state("11", time="t15", stopped=True))
    assert told(story(*stopped, state("11", time="t17", stopped=True))) == [("11", "t10", "")]


def test_what_a_stamp_was_written_from_does_not_count():
    stamp = stamp_of(state())
    assert agree(stamp, replace(stamp, epoch=9, resource_version="99", digest="v2:x", generation=5))


@pytest.mark.parametrize(
    "change",
    [
        {"ready": True}, {"deleted": True}, {"load_failure": "x"}, {"deployment_mode": "x"}, {"storage_uri": "x"},
        {"model_format": "x"}, {"model_version": "x"}, {"deployed_at": "x"}, {"undeployed_at": "x"},
        {"history": ()}, {"history_cut": 1}, {"cluster": "x"}, {"name": "x"},
    ],
    ids=repr,
)  # fmt: skip
def test_everything_else_counts(change):
    stamp = stamp_of(state())
    assert not agree(stamp, replace(stamp, **change))


def test_closing_keeps_what_the_record_said_of_its_own_model():
    record = recorded(state("11", status=READY))
    moved = replace(state("21", resource_version="20", time="t20"), digest="v1:e")
    stamp = closing_stamp(moved, record, US)
    assert stamp == replace(
        record.stamp, resource_version="20", digest="v1:e", ready=False, load_failure="", undeployed_at="t20"
    )


def test_closing_says_when_the_first_of_the_states_came_that_were_passed_over():
    """So that none of them is old news to an owner that finds this record closed, and the new one not yet made."""
    record = recorded(state("11"))
    moved = state("23", resource_version="20", time="t20", passed=(passed("21", "15"), passed("22", "17")))
    stamp = closing_stamp(moved, record, US)
    assert (stamp.freshness, stamp.undeployed_at) == (Freshness(1, "15"), "t15")


def test_closing_ends_nothing_before_the_record_was_written():
    record = recorded(state("11", resource_version="16"))
    moved = state("23", resource_version="20", time="t20", passed=(passed("21", "15"), passed("22", "17")))
    assert closing_stamp(moved, record, US).freshness == Freshness(1, "17")
    assert closing_stamp(replace(moved, passed=moved.passed[:1]), record, US).freshness == Freshness(1, "20")


def test_closing_a_predecessors_record_ends_it_with_the_first_state_as_well():
    record = Record("7", f"iris/{UID}", "", "3", "1", "12", deployed=True)
    stamp = closing_stamp(state("23", resource_version="20", time="t20", passed=(passed("21", "15"),)), record, US)
    assert (stamp.freshness, stamp.undeployed_at) == (Freshness(1, "15"), "t15")


def test_closing_what_is_closed_keeps_its_time():
    closed = recorded(state("11", stopped=True, time="t15"))
    assert closing_stamp(state(gone=True, time="t20"), closed, US).undeployed_at == "t15"


def test_closing_a_predecessors_record_says_what_can_be_known():
    record = Record("7", f"iris/{UID}", "", "3", "1", "12", deployed=True)
    stamp = closing_stamp(state("21", time="t20", gone=True), record, US)
    assert (stamp.model_version, stamp.deployed_at, stamp.undeployed_at) == ("12", BORN, "t20")
    assert (stamp.cluster_id, stamp.uid, stamp.deleted) == ("c-1", UID, True)


def test_every_field_of_a_stamp_is_set_on_purpose():
    """A new field would have to say here whether it rides along."""
    assert len(msgspec.structs.fields(Stamp)) == 21
