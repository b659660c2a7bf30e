"""What takes the place of what in the queue, and what the one that goes leaves to the one that comes."""

import pytest
from msgspec.structs import replace

from consumer.delivery.work import Work, look_later
from consumer.delivery.workqueue import WorkQueue
from consumer.observation import PassedVersion
from tests.unit.consumer.deliveries import look_work, small_work
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.worlds import KEY, PREFIX

PAUSE_S = 0.2


@pytest.fixture
def queue():
    return WorkQueue(PREFIX, PAUSE_S)


def test_a_newer_state_replaces_the_waiting_one(queue):
    older, newer = small_work(1), small_work(2)
    queue.add(older, 0.0)
    assert queue.add(newer, 0.0) == [older]
    assert queue.next(0.0) is newer
    assert queue.held() == [newer]


def test_a_replaced_state_leaves_its_versions_oldest_first(queue):
    for version, label in ((1, "11"), (2, "12"), (3, "11")):
        queue.add(small_work(version, label=label), 0.0)
    assert queue.next(0.0).seen.passed == (
        PassedVersion("1", "11", "1", "t1", 1),
        PassedVersion("1", "12", "2", "t2", 1),
    )


def of_model(version, model):
    work = small_work(version)
    labels = work.seen.obj.metadata.labels | {PREFIX + "registered-model-id": model}
    metadata = replace(work.seen.obj.metadata, labels=labels)
    work.seen = replace(work.seen, obj=replace(work.seen.obj, metadata=metadata))
    return work


def handled(queue):
    """Return the resourceVersions of what the queue still gives, in order."""
    order, now = [], 100.0
    while (work := queue.next(now)) is not None:
        order.append(work.seen.freshness.resource_version)
        queue.done(work, now)
        now += PAUSE_S
    return order


def test_a_state_of_another_model_replaces_nothing(queue):
    states = [(1, "1"), (2, "2"), (3, "2"), (4, "1"), (5, "1")]
    superseded = [queue.add(of_model(version, model), 0.0) for version, model in states]
    assert [len(each) for each in superseded] == [0, 0, 1, 0, 1]
    assert handled(queue) == ["1", "3", "5"]


def test_a_failed_state_of_another_model_is_tried_again_before_the_newer_one(queue):
    failing, newer = of_model(1, "1"), of_model(2, "2")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.add(newer, 0.1)
    assert queue.again(failing, 0.2, delay_s=5.0) is None
    assert queue.next(5.1) is None
    assert handled(queue) == ["1", "2"]


def test_a_state_of_another_model_ends_the_wait_of_a_failed_one(queue):
    failing = of_model(1, "1")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.again(failing, 0.0, delay_s=60.0)
    assert queue.add(of_model(2, "2"), 3.0) == []
    assert queue.next(3.0) is failing


@pytest.mark.parametrize("why", ["yields", "recorded"])
def test_nothing_waits_for_a_state_whose_registry_is_unclear_or_whose_records_are_written(queue, why):
    failing, newer = of_model(1, "1"), of_model(2, "2")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.add(newer, 0.1)
    setattr(failing, why, True)
    assert queue.again(failing, 0.2, delay_s=60.0) is newer
    assert queue.next(0.3) is newer


@pytest.mark.parametrize("why", ["yields", "recorded"])
def test_a_newer_state_takes_the_place_of_one_whose_registry_is_unclear_or_whose_records_are_written(queue, why):
    failing, newer = of_model(1, "1"), of_model(2, "2")
    queue.add(failing, 0.0)
    queue.next(0.0)
    setattr(failing, why, True)
    queue.again(failing, 0.0, delay_s=60.0)
    queue.add(newer, 3.0)
    assert queue.next(3.0) is newer
    queue.done(newer, 3.0)
    assert handled(queue) == []


def test_a_replaced_look_leaves_that_it_was_forced(queue):
    queue.add(look_work(sequence=1), 0.0)
    queue.add(look_work(sequence=2), 0.0)
    assert queue.next(0.0).forced


def test_a_look_that_replaces_one_keeps_no_place_before_the_events_that_came_between(queue):
    event = small_work(2, sequence=2)
    for work in (look_work(sequence=1), event):
        queue.add(work, 0.0)
    [superseded] = queue.add(look_work(sequence=3), 0.0)
    assert superseded.message.sequence == 1
    assert queue.next(0.0) is event


def test_a_replaced_creation_leaves_that_no_record_exists_yet(queue):
    queue.add(small_work(1, creates_first=True), 0.0)
    queue.add(small_work(2), 0.0)
    assert queue.next(0.0).creates_first


def test_a_creation_that_replaces_an_update_proves_nothing(queue):
    queue.add(small_work(1), 0.0)
    queue.add(small_work(2, creates_first=True), 0.0)
    assert not queue.next(0.0).creates_first


def test_an_older_state_does_not_replace_the_waiting_one(queue):
    newer, older = small_work(2), small_work(1)
    queue.add(newer, 0.0)
    assert queue.add(older, 0.0) == [older]
    assert queue.next(0.0) is newer


def test_an_older_state_does_not_wait_behind_the_one_at_hand(queue):
    newer, older = small_work(2), small_work(1)
    queue.add(newer, 0.0)
    queue.next(0.0)
    assert queue.add(older, 0.1) == [older]
    assert queue.again(newer, 0.2, delay_s=1.0) is None
    assert queue.held() == [newer]


def test_an_older_state_of_another_uid_waits(queue):
    newer, other = small_work(2), small_work(1, uid="other")
    queue.add(newer, 0.0)
    queue.next(0.0)
    assert queue.add(other, 0.1) == []


def test_a_message_at_hand_answers_for_its_second_delivery_with_the_later_address(queue):
    first, second = small_work(1), small_work(1)
    queue.add(first, 0.0)
    queue.next(0.0)
    assert queue.add(second, 0.1) == []
    assert queue.held() == [first]
    assert first.message is second.message


def test_a_second_delivery_behind_a_newer_state_is_not_acknowledged_while_the_first_one_waits(queue):
    first, newer = small_work(1), of_model(2, "2")
    queue.add(first, 0.0)
    queue.add(newer, 0.1)
    assert queue.add(small_work(1), 0.2) == []
    assert queue.held() == [first, newer]


def test_a_version_that_came_back_stays_in_hand_with_the_one_in_between(queue):
    first, second, third = small_work(1, label="11"), small_work(2, label="12"), small_work(3, label="11")
    queue.add(first, 0.0)
    queue.next(0.0)
    queue.add(second, 0.0)
    assert queue.add(third, 0.0) == []
    assert queue.again(first, 0.1, delay_s=9.0) is None
    assert third.passed == [first, second]


def test_a_state_whose_version_only_the_history_can_tell_stays_in_hand_with_the_newer_one(queue):
    first, second, third = small_work(1, label="11"), small_work(2, label="12"), small_work(3, label="12")
    queue.add(first, 0.0)
    assert queue.add(second, 0.0) == []
    assert queue.add(third, 0.0) == [second], "the third one says the same version"
    assert third.passed == [first]
    again = small_work(1, label="11")
    assert queue.add(again, 0.0) == []
    assert [each.message for each in third.passed] == [again.message]


def test_a_newer_state_ends_the_wait_of_a_failed_one(queue):
    failing, newer = small_work(1), small_work(2)
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.again(failing, 0.0, delay_s=60.0)
    assert queue.add(newer, 3.0) == [failing]
    assert queue.wakes_at() == 3.0
    assert queue.next(3.0) is newer
    assert newer.attempt == 1


def test_a_failure_with_a_newer_state_waiting_is_replaced_by_it(queue):
    failing, newer = small_work(1, label="11", creates_first=True), small_work(2, label="12")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.add(newer, 0.1)
    assert queue.again(failing, 0.3, delay_s=60.0) is None
    assert newer.passed == [failing], "to be acknowledged with it: nothing else tells of version 11"
    assert queue.next(0.3) is newer
    assert newer.seen.passed == (PassedVersion("1", "11", "1", "t1", 1),)
    assert not newer.creates_first, "the failed try may have created it"


def test_what_a_failed_try_settled_is_settled_for_the_one_that_replaces_it(queue):
    failing, newer = small_work(1), small_work(2)
    queue.add(failing, 0.0)
    queue.next(0.0)
    failing.settled = True
    queue.add(newer, 0.1)
    queue.again(failing, 0.3, delay_s=1.0)
    assert newer.settled


def test_what_does_not_decode_is_replaced_by_nothing(queue):
    broken = [Work(KEY, FakeMessage(sequence), failure=ValueError("x")) for sequence in (1, 2)]
    for work in (*broken, look_work(sequence=3), small_work(4)):
        assert queue.add(work, 0.0) == []
    assert len(queue.held()) == 4


def test_a_look_of_our_own_does_not_replace_one_that_somebody_waits_for(queue):
    asked, own = look_work(sequence=9), look_later(KEY)
    queue.add(asked, 0.0)
    assert queue.add(own, 0.0) == [own]
    assert queue.held() == [asked]


def test_a_look_that_somebody_waits_for_replaces_our_own(queue):
    asked, own = look_work(sequence=9), look_later(KEY)
    queue.add(own, 0.0)
    assert queue.add(asked, 0.0) == [own]
    assert queue.next(0.0).forced


def test_a_failed_look_is_not_handed_over_to_one_of_our_own(queue):
    asked, own = look_work(sequence=9), look_later(KEY)
    queue.add(asked, 0.0)
    queue.next(0.0)
    queue.add(own, 0.1)
    assert queue.again(asked, 0.2, delay_s=1.0) is None
    assert asked in queue.held()
