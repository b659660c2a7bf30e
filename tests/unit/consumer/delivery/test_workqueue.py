"""The queue's rules one by one: order, pauses, tries; what replaces what: test_workqueue_replacing.py."""

import pytest

from consumer.delivery.workqueue import WorkQueue
from tests.unit.consumer.deliveries import small_work
from tests.unit.consumer.worlds import PREFIX

PAUSE_S = 0.2


@pytest.fixture
def queue():
    return WorkQueue(PREFIX, PAUSE_S)


def test_a_quiet_object_is_handled_at_once(queue):
    work = small_work(1)
    assert queue.add(work, 5.0) == []
    assert queue.wakes_at() == 5.0
    assert queue.next(5.0) is work


def test_nothing_comes_from_an_empty_queue(queue):
    assert queue.next(5.0) is None
    assert queue.wakes_at() is None


def test_one_message_of_an_object_is_at_hand(queue):
    first, second = small_work(1), small_work(2)
    queue.add(first, 0.0)
    assert queue.next(0.0) is first
    queue.add(second, 1.0)
    assert queue.next(10.0) is None
    queue.done(first, 10.0)
    assert queue.next(10.0) is second


def test_different_objects_are_at_hand_side_by_side(queue):
    a, b = small_work(1, name="a"), small_work(2, name="b", uid="other")
    queue.add(a, 0.0)
    queue.add(b, 0.0)
    assert [queue.next(0.0), queue.next(0.0), queue.next(0.0)] == [a, b, None]


def test_the_next_one_waits_until_the_pause_after_the_begin_of_the_handling(queue):
    first, second = small_work(1), small_work(2)
    queue.add(first, 0.0)
    queue.next(0.0)
    queue.done(first, 0.05)
    queue.add(second, 0.06)
    assert queue.next(0.19) is None
    assert queue.next(0.2) is second


def test_a_long_handling_makes_the_next_one_wait_no_longer(queue):
    first, second = small_work(1), small_work(2)
    queue.add(first, 0.0)
    queue.next(0.0)
    queue.add(second, 0.5)
    queue.done(first, 3.0)
    assert queue.next(3.0) is second


def test_an_object_that_was_quiet_for_the_pause_is_forgotten(queue):
    first, second = small_work(1), small_work(2)
    queue.add(first, 0.0)
    queue.next(0.0)
    queue.done(first, 0.05)
    assert queue.next(PAUSE_S) is None
    assert (queue.wakes_at(), queue._lanes) == (None, {})
    queue.add(second, 0.21)
    assert queue.next(0.21) is second


def test_several_uids_of_one_name_run_in_the_order_in_which_they_came(queue):
    queue.add(small_work(1, uid="old"), 0.0)
    queue.add(small_work(2, uid="young"), 0.0)
    replacing = small_work(3, uid="old")
    queue.add(replacing, 0.0)
    order, now = [], 0.0
    while (work := queue.next(now)) is not None:
        order.append((work.uid, work.seen.freshness.resource_version))
        queue.done(work, now)
        now += PAUSE_S
    assert order == [("old", "3"), ("young", "2")]


def test_a_failed_message_waits_for_its_time_and_counts_its_tries(queue):
    work = small_work(1, creates_first=True)
    queue.add(work, 0.0)
    queue.next(0.0)
    assert queue.again(work, 1.0, delay_s=5.0) is None
    assert queue.wakes_at() == 6.0
    assert queue.next(5.9) is None
    assert queue.next(6.0) is work
    assert work.attempt == 2
    assert not work.creates_first


def test_a_failed_message_comes_before_the_other_uids_of_its_name(queue):
    failing, young = small_work(1, uid="old"), small_work(2, uid="young")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.add(young, 0.1)
    queue.again(failing, 0.2, delay_s=1.0)
    assert queue.next(1.1) is None
    assert queue.next(1.2) is failing


def test_a_failed_message_holds_up_no_other_object(queue):
    failing, other = small_work(1), small_work(2, name="b", uid="other")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.again(failing, 0.0, delay_s=60.0)
    queue.add(other, 0.1)
    assert queue.next(0.1) is other


def test_a_retry_is_never_sooner_than_the_pause(queue):
    work = small_work(1)
    queue.add(work, 0.0)
    queue.next(0.0)
    queue.again(work, 0.01, delay_s=0.05)
    assert queue.wakes_at() == PAUSE_S


def test_only_what_is_at_hand_can_end(queue):
    work = small_work(1)
    queue.add(work, 0.0)
    with pytest.raises(AssertionError, match="at hand"):
        queue.done(work, 0.0)


def test_the_pause_is_that_of_a_uid_so_that_a_recreated_object_does_not_wait():
    queue = WorkQueue(PREFIX)
    old, new = small_work(10, uid="old"), small_work(11, uid="new")
    queue.add(old, 0.0)
    assert queue.next(0.0) is old
    queue.add(new, 0.0)
    queue.done(old, 0.01)
    assert queue.next(0.01) is new


def test_what_is_at_hand_of_a_dropped_object_swallows_no_delivery_of_itself(queue):
    outlived, again = small_work(2), small_work(2)
    queue.add(outlived, 0.0)
    queue.next(0.0)
    queue.drop(lambda _: True)
    assert queue.add(again, 1.0) == []
    assert queue.next(10.0) is None, "one at a time, still"
    queue.done(outlived, 10.0)
    assert queue.next(10.0) is again


def test_what_is_at_hand_of_a_dropped_object_makes_nothing_older_superfluous(queue):
    outlived, older = small_work(2), small_work(1)
    queue.add(outlived, 0.0)
    queue.next(0.0)
    queue.drop(lambda _: True)
    assert queue.add(older, 1.0) == []
    queue.done(outlived, 10.0)
    assert queue.next(10.0) is older


def test_after_it_has_ended_deliveries_are_compared_again(queue):
    outlived, newer, older = small_work(1), small_work(3), small_work(2)
    queue.add(outlived, 0.0)
    queue.next(0.0)
    queue.drop(lambda _: True)
    queue.done(outlived, 1.0)
    queue.add(newer, 2.0)
    assert queue.next(10.0) is newer
    assert queue.add(older, 10.0) == [older]
