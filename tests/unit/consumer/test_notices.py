"""Which notices become Events, and when: counts, windows and limits, on times that the test makes up."""

import re

import pytest
from msgspec.structs import replace

from consumer import notices
from consumer.notices import (
    COUNT_PAUSE_S,
    COUNTS_PER_PROCESS,
    EVENTS_MAX,
    MESSAGE_CHARS,
    NEW_PER_OBJECT,
    NEW_PER_PROCESS,
    RETRIED_FOR_S,
    WINDOW_S,
    About,
    Ledger,
    Notice,
    Told,
    Topic,
)
from tests.unit.consumer.worlds import KEY, UID

NOW = 1_796_000_000.0
IRIS = About(KEY, UID, "10")
FAILED = Notice(Topic.SYNC_FAILED, "registered model 404 does not exist in the registry")


def about(number: int) -> About:
    return About(replace(KEY, name=f"iris-{number}"), f"uid-{number}", "10")


def written(ledger: Ledger, now: float) -> list[notices.Writing]:
    found = []
    while (writing := ledger.next(now)) is not None:
        found.append(writing)
    return found


def test_a_notice_is_an_event_at_once():
    ledger = Ledger()
    assert ledger.add(IRIS, FAILED, NOW) is Told.NEW
    (writing,) = written(ledger, NOW)
    assert (writing.about, writing.notice, writing.count, writing.is_new) == (IRIS, FAILED, 1, True)
    assert (writing.first, writing.last) == ("2026-11-30T00:53:20Z", "2026-11-30T00:53:20Z")
    assert writing.name.startswith("iris.")


def test_what_is_said_again_is_a_count_on_the_same_event_once_a_minute():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    (first,) = written(ledger, NOW)
    for second in range(1, 6):
        assert ledger.add(IRIS, replace(FAILED, message=f"try {second}"), NOW + second) is Told.COUNTED
        assert written(ledger, NOW + second) == []
    assert ledger.wakes_at(NOW + 5) == NOW + COUNT_PAUSE_S
    (count,) = written(ledger, NOW + COUNT_PAUSE_S)
    assert (count.name, count.first, count.count, count.is_new) == (first.name, first.first, 6, False)
    assert count.notice.message == "try 5"
    assert ledger.wakes_at(NOW + COUNT_PAUSE_S) is None


def test_a_count_tells_when_it_was_last_said():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    written(ledger, NOW)
    ledger.add(IRIS, FAILED, NOW + 90)
    (count,) = written(ledger, NOW + 90)
    assert (count.first, count.last) == ("2026-11-30T00:53:20Z", "2026-11-30T00:54:50Z")


@pytest.mark.parametrize(
    ("quiet_s", "told"), [(WINDOW_S - 1, Told.COUNTED), (WINDOW_S, Told.NEW), (5 * WINDOW_S, Told.NEW)]
)
def test_after_a_quiet_window_it_is_a_new_event(quiet_s, told):
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    (before,) = written(ledger, NOW)
    assert ledger.add(IRIS, FAILED, NOW + quiet_s) is told
    (after,) = written(ledger, NOW + quiet_s)
    assert (after.is_new, after.name != before.name) == (told is Told.NEW, told is Told.NEW)


def test_objects_uids_and_topics_have_events_of_their_own():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    assert ledger.add(replace(IRIS, uid="other"), FAILED, NOW) is Told.NEW
    assert ledger.add(IRIS, Notice(Topic.NOT_INDEXED, "x"), NOW) is Told.NEW
    assert ledger.add(about(1), FAILED, NOW) is Told.NEW
    assert len({writing.name for writing in written(ledger, NOW)}) == 4


@pytest.mark.parametrize("topic", [Topic.WRITE_BACK_DEFERRED, Topic.OTHER_RECORDS_ID])
def test_what_every_look_finds_again_is_told_once(topic):
    ledger = Ledger()
    notice = Notice(topic, "record 7")
    assert ledger.add(IRIS, notice, NOW) is Told.NEW
    written(ledger, NOW)
    assert ledger.add(IRIS, notice, NOW + 5) is Told.REPEATED
    assert ledger.add(IRIS, notice, NOW + 100 * WINDOW_S) is Told.REPEATED
    assert written(ledger, NOW + 100 * WINDOW_S) == []
    assert ledger.add(IRIS, replace(notice, message="record 8"), NOW + 10) is Told.COUNTED


def test_what_each_try_finds_again_and_a_person_must_mend_is_told_once_an_hour():
    ledger = Ledger()
    missing = notices.registry_not_found("label name=typo: there is no such Service")
    assert ledger.add(IRIS, missing, NOW) is Told.NEW
    (first,) = written(ledger, NOW)
    for minute in range(1, 60):
        assert ledger.add(IRIS, missing, NOW + 60 * minute) is Told.REPEATED
    assert written(ledger, NOW + WINDOW_S - 1) == []
    assert ledger.add(IRIS, missing, NOW + WINDOW_S) is Told.NEW
    (second,) = written(ledger, NOW + WINDOW_S)
    assert (second.is_new, second.name != first.name) == (True, True)
    assert ledger.add(IRIS, notices.registry_not_found("another"), NOW + WINDOW_S + 1) is Told.COUNTED


def test_an_object_has_so_many_new_events_an_hour():
    ledger = Ledger()
    told = [ledger.add(IRIS, Notice(topic, "x"), NOW) for topic in Topic]
    assert told == [Told.NEW] * NEW_PER_OBJECT + [Told.LIMITED] * (len(Topic) - NEW_PER_OBJECT)
    assert Told.LIMITED in told
    assert ledger.add(about(1), FAILED, NOW) is Told.NEW
    last = list(Topic)[-1]
    assert ledger.add(IRIS, Notice(last, "x"), NOW + 3599) is Told.LIMITED
    assert ledger.add(IRIS, Notice(last, "x"), NOW + 3600) is Told.NEW


def test_a_process_has_so_many_new_events_a_minute():
    ledger = Ledger()
    told = [ledger.add(about(number), FAILED, NOW + number / 1000) for number in range(500)]
    assert told == [Told.NEW] * NEW_PER_PROCESS + [Told.LIMITED] * (500 - NEW_PER_PROCESS)
    assert ledger.add(about(0), FAILED, NOW + 1) is Told.COUNTED
    assert ledger.add(about(499), FAILED, NOW + 61) is Told.NEW


def test_what_only_informs_crowds_out_no_warning():
    ledger = Ledger()
    made = Notice(Topic.REGISTERED, "record 7")
    told = [ledger.add(about(number), made, NOW) for number in range(NEW_PER_PROCESS + 1)]
    assert told[-1] is Told.LIMITED
    assert ledger.add(IRIS, FAILED, NOW) is Told.NEW


def test_a_process_writes_so_many_counts_a_minute_and_the_others_wait():
    ledger = Ledger()
    many = 2 * COUNTS_PER_PROCESS
    for number in range(many):
        assert ledger.add(about(number), FAILED, NOW + 61 * (number // NEW_PER_PROCESS)) is Told.NEW
    later = NOW + 200
    assert len(written(ledger, later)) == many
    for number in range(many):
        ledger.add(about(number), FAILED, later + 61)
    assert len(written(ledger, later + 61)) == COUNTS_PER_PROCESS
    wakes_at = ledger.wakes_at(later + 61)
    assert wakes_at == later + 121
    assert len(written(ledger, wakes_at)) == COUNTS_PER_PROCESS
    assert ledger.wakes_at(wakes_at) is None


def test_a_new_event_does_not_wait_for_counts():
    ledger = Ledger()
    for number in range(NEW_PER_PROCESS):
        ledger.add(about(number), FAILED, NOW)
    written(ledger, NOW)
    for number in range(NEW_PER_PROCESS):
        ledger.add(about(number), FAILED, NOW + 70)
    assert ledger.add(IRIS, FAILED, NOW + 70) is Told.NEW
    assert any(writing.about == IRIS for writing in written(ledger, NOW + 70))


def test_what_failed_is_tried_again_a_minute_later_with_the_name_it_had():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    (first,) = written(ledger, NOW)
    ledger.failed(first, NOW, again=True)
    assert written(ledger, NOW + 1) == []
    (second,) = written(ledger, ledger.wakes_at(NOW + 1))
    assert (second.name, second.is_new, second.count) == (first.name, True, 1)


def test_what_fails_for_ten_minutes_is_given_up():
    ledger, now = Ledger(), NOW
    ledger.add(IRIS, FAILED, now)
    tries = 0
    while (wakes_at := ledger.wakes_at(now)) is not None:
        now = max(now, wakes_at)
        for writing in written(ledger, now):
            tries += 1
            ledger.failed(writing, now, again=True)
    assert tries == RETRIED_FOR_S / COUNT_PAUSE_S + 1
    assert ledger.add(IRIS, FAILED, now) is Told.NEW


def test_what_can_never_be_written_is_given_up_at_once():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    (writing,) = written(ledger, NOW)
    ledger.failed(writing, NOW, again=False)
    assert ledger.wakes_at(NOW) is None
    assert ledger.add(IRIS, FAILED, NOW + 1) is Told.NEW


def test_what_was_said_while_a_failing_write_was_under_way_is_counted():
    ledger = Ledger()
    ledger.add(IRIS, FAILED, NOW)
    (writing,) = written(ledger, NOW)
    ledger.add(IRIS, FAILED, NOW + 1)
    ledger.failed(writing, NOW + 2, again=True)
    (again,) = written(ledger, NOW + COUNT_PAUSE_S)
    assert (again.count, again.is_new) == (2, True)


def test_the_ledger_does_not_grow_without_end():
    ledger = Ledger()
    for number in range(EVENTS_MAX + 500):
        assert ledger.add(about(number), FAILED, NOW + 2.0 * number) is Told.NEW
    assert len(ledger._events) == EVENTS_MAX
    assert ledger.next(NOW + 4.0 * EVENTS_MAX).about == about(500)


def test_a_message_is_one_line_without_credentials_and_not_too_long():
    message = "patching failed:\n  https://user:not-a-secret@host.example/path?token=not-a-secret said " + "x" * 5000
    said = Notice(Topic.SYNC_FAILED, message).said
    assert said.startswith("patching failed: https://host.example/path said xxx")
    assert "not-a-secret" not in said
    assert len(said) == MESSAGE_CHARS


def test_only_what_asks_nothing_of_a_person_is_normal():
    normal = {topic for topic in Topic if topic.event_type == "Normal"}
    assert normal == {Topic.REGISTERED, Topic.WRITE_BACK_DEFERRED}
    assert {topic.event_type for topic in Topic} == {"Normal", "Warning"}


@pytest.mark.parametrize("topic", Topic)
def test_a_topic_is_one_word_in_camel_case(topic):
    assert topic[0].isupper()
    assert topic.isalpha()


def test_the_notices_name_what_they_are_about():
    key = "modelregistry.kubeflow.org/inference-service-id"
    assert notices.registered("7", "1", "http://registry.example").said == (
        "registered model 1 is recorded as deployed: record 7 in http://registry.example"
    )
    assert "not-a-secret" not in notices.registered("7", "1", "http://u:not-a-secret@registry.example").message
    assert "label name=typo" in notices.registry_not_found("label name=typo: there is no such Service").said
    assert f"{key}='99'" in notices.other_records_id(key, "99").said
    assert "record 7" in notices.write_back_deferred(key, "7", "restart").said
    assert "3 times within 60 s" in notices.write_back_limited(key, 3, 60.0).said


@pytest.mark.parametrize("name", ["iris", "n" * 253, "n" * 199 + "-" + "n" * 53, "n" * 199 + "." + "n" * 53])
def test_an_event_has_a_name_that_kubernetes_takes(name):
    ledger = Ledger()
    ledger.add(About(replace(KEY, name=name), UID), FAILED, NOW)
    (writing,) = written(ledger, NOW)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", writing.name)
    assert len(writing.name) <= 253
