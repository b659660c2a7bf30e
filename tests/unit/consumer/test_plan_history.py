"""Versions in what `plan` writes: a changed one, those that were passed over, and how many are kept."""

from msgspec.structs import replace

from consumer.actions import UpdateRecord
from consumer.observation import PassedVersion
from consumer.plan import Facts, Questions, plan, questions
from consumer.records import VersionChange
from tests.unit.consumer.planning import IN_SYNC, LINKED, RECORD, decided, kinds, only, stamp_in
from tests.unit.consumer.worlds import FACTS, MODEL, SEEN, SETTINGS, VERSION, an_object, carrying, performed, seen


def test_a_changed_version_is_one_write_and_history():
    update = only(
        UpdateRecord, decided(seen(carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7")), RECORD)
    )
    assert (update.version_id, update.deployed) == ("12", True)
    assert stamp_in(update).history == (VersionChange("11", "10", SEEN), VersionChange("12", "20", SEEN))


def test_a_removed_version_is_said_in_the_property_because_the_field_cannot_be_cleared():
    update = only(UpdateRecord, decided(seen(carrying(an_object({MODEL: "1"}, version="20"), "7")), RECORD))
    assert update.version_id == ""
    assert stamp_in(update).model_version == ""


def test_versions_that_were_passed_over_are_in_the_history():
    passed = (
        PassedVersion("1", "12", "15", "t15", 1),
        PassedVersion("2", "21", "16", "t16", 1),
        PassedVersion("1", "", "17", "t17", 1),
    )
    update = only(UpdateRecord, decided(replace(seen(carrying(an_object(version="20"), "7")), passed=passed), RECORD))
    assert [(each.version, each.resource_version) for each in stamp_in(update).history] == [
        ("11", "10"),
        ("12", "15"),
        ("", "17"),
        ("11", "20"),
    ]


def test_a_version_that_an_earlier_try_has_written_is_not_told_twice():
    """Its answer was lost, so it is handed on as passed over; the record itself knows better."""
    passed = (PassedVersion("1", "11", "10", SEEN, 1),)
    update = only(
        UpdateRecord,
        decided(
            replace(seen(carrying(an_object({MODEL: "1", VERSION: "12"}, version="20"), "7")), passed=passed), RECORD
        ),
    )
    assert [each.version for each in stamp_in(update).history] == ["11", "12"]


MANY = Facts(FACTS.models, {**FACTS.versions, **{str(100 + n): "1" for n in range(60)}})


def test_a_version_of_another_model_that_was_passed_over_is_recorded_as_none():
    passed = (PassedVersion("1", "21", "15", "t15", 1), PassedVersion("1", "latest", "17", "t17", 1))
    observation = replace(seen(carrying(an_object(version="20"), "7")), passed=passed)
    facts = Facts(FACTS.models, {**FACTS.versions, "21": "2"})
    update = only(UpdateRecord, decided(observation, RECORD, facts=facts))
    assert [each.version for each in stamp_in(update).history] == ["11", "", "11"]


def test_versions_that_were_passed_over_are_asked_for_unless_the_record_knows_them():
    passed = (
        PassedVersion("1", "11", "11", "t", 1),
        PassedVersion("1", "12", "12", "t", 1),
        PassedVersion("2", "21", "13", "t", 1),
    )
    observation = replace(IN_SYNC, passed=passed)
    assert questions(observation, {"1": RECORD}, SETTINGS) == Questions(versions=frozenset({"12"}))


def test_versions_passed_over_under_a_label_that_is_no_id_stop_nothing():
    observation = replace(seen(an_object({MODEL: "mnist"})), passed=(PassedVersion("mnist", "12", "5", "t", 1),))
    assert kinds(decided(observation, facts=Facts())) == ["Reject"]


def test_the_history_keeps_the_last_fifty_and_counts_the_others():
    passed = tuple(PassedVersion("1", str(100 + n), str(n + 11), "t", 1) for n in range(60))
    observation = replace(seen(carrying(an_object(version="99"), "7")), passed=passed)
    update = only(UpdateRecord, decided(observation, RECORD, facts=MANY))
    stamp = stamp_in(update)
    assert (len(stamp.history), stamp.history_cut, stamp.history[-1].version) == (50, 12, "11")


def test_what_was_cut_from_the_history_adds_up():
    observation = seen(carrying(an_object(version="99"), "7"))
    passed = tuple(PassedVersion("1", str(100 + n), str(n + 11), "t", 1) for n in range(60))
    first = only(UpdateRecord, decided(replace(observation, passed=passed), RECORD, facts=MANY))
    _, records = performed(first, LINKED, {"1": RECORD}, 8)
    newer = tuple(replace(each, resource_version=str(int(each.resource_version) + 100)) for each in passed)
    later = replace(seen(carrying(an_object(version="199"), "7")), passed=newer)
    second = only(UpdateRecord, plan(later, records, MANY, SETTINGS))
    assert stamp_in(second).history_cut == 12 + 61
