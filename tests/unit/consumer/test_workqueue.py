"""The queue's rules one by one, and a model of it under random operations."""

import random

import pytest
from msgspec.structs import replace

from consumer.freshness import Order, compare
from consumer.observation import PassedVersion
from consumer.work import Work, look_later
from consumer.workqueue import WorkQueue
from tests.unit.consumer.deliveries import look_work, small_work
from tests.unit.consumer.fakes import FakeMessage
from tests.unit.consumer.worlds import KEY, PREFIX

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


def test_nothing_waits_for_a_state_whose_registry_cannot_be_found(queue):
    failing, newer = of_model(1, "1"), of_model(2, "2")
    queue.add(failing, 0.0)
    queue.next(0.0)
    queue.add(newer, 0.1)
    failing.yields = True
    assert queue.again(failing, 0.2, delay_s=60.0) is newer
    assert queue.next(0.3) is newer


def test_a_newer_state_takes_the_place_of_one_that_waits_for_its_registry(queue):
    failing, newer = of_model(1, "1"), of_model(2, "2")
    queue.add(failing, 0.0)
    queue.next(0.0)
    failing.yields = True
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


def test_only_what_is_at_hand_can_end(queue):
    work = small_work(1)
    queue.add(work, 0.0)
    with pytest.raises(AssertionError, match="at hand"):
        queue.done(work, 0.0)


class Model:
    """What became of each message, told by the queue's own answers."""

    def __init__(self, queue: WorkQueue) -> None:
        self.queue = queue
        self.now = 0.0
        self.held: list[Work] = []
        self.at_hand: list[Work] = []
        self.ended: dict[int, str] = {}
        self.everything: list[Work] = []  # so that no id is used twice
        self.versions: dict[tuple[str, str], int] = {}
        self.handled: dict[tuple[str, str], int] = {}

    def add(self, work: Work) -> None:
        self.held.append(work)
        self.everything.append(work)
        slot = (str(work.key), work.uid)
        version = int(work.seen.freshness.resource_version)
        self.versions[slot] = max(version, self.versions.get(slot, 0))
        twin = next((each for each in self.held[:-1] if each.message.sequence == work.message.sequence), None)
        for superseded in self.queue.add(work, self.now):
            self.superseded(superseded)
        if twin is not None:
            assert twin.message is work.message
            self.held = [each for each in self.held if each is not work]  # equal to its twin by now
        self.check()

    def next(self) -> None:
        work = self.queue.next(self.now)
        if work is not None:
            assert all(each.key != work.key for each in self.at_hand), "two of one object at hand"
            self.at_hand.append(work)
        self.check()

    def done(self, work: Work) -> None:
        self.at_hand.remove(work)
        self.held.remove(work)
        self.ended[id(work)] = "done"
        slot = (str(work.key), work.uid)
        self.handled[slot] = max(self.handled.get(slot, 0), int(work.seen.freshness.resource_version))
        self.queue.done(work, self.now)
        self.check()

    def again(self, work: Work, delay_s: float) -> None:
        self.at_hand.remove(work)
        if self.queue.again(work, self.now, delay_s) is not None:
            self.superseded(work)
        self.check()

    def superseded(self, work: Work) -> None:
        assert id(work) not in self.ended, "ended twice"
        self.held.remove(work)
        self.ended[id(work)] = "superseded"
        heirs = [each for each in self.queue.held() if each.key == work.key and each.uid == work.uid]
        assert any(compare(work.freshness, heir.freshness) is not Order.NEWER for heir in heirs), "nobody took it over"

    def check(self) -> None:
        assert {id(work) for work in self.queue.held()} == {id(work) for work in self.held}
        if len(self.held) > len(self.at_hand):
            assert self.queue.wakes_at() is not None or {w.key for w in self.held} == {w.key for w in self.at_hand}


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_doubled_or_overtaken_whatever_happens(seed):
    chance = random.Random(seed)
    model = Model(WorkQueue(PREFIX, PAUSE_S))
    version, added = 0, []
    for _ in range(150):
        match chance.choice(("add", "add", "add", "redeliver", "next", "next", "end", "end", "time")):
            case "add":
                version += 1
                name = chance.choice("ab")
                added.append(small_work(version, name=name, uid=chance.choice((f"{name}1", f"{name}2"))))
                model.add(added[-1])
            case "redeliver" if added:
                old = chance.choice(added)
                model.add(small_work(int(old.seen.freshness.resource_version), name=old.key.name, uid=old.uid))
            case "next":
                model.next()
            case "end" if model.at_hand:
                work = chance.choice(model.at_hand)
                if chance.random() < 0.5:
                    model.done(work)
                else:
                    model.again(work, chance.choice((0.0, 0.1, 1.0, 10.0)))
            case "time":
                model.now += chance.choice((0.01, 0.1, 0.2, 1.0))
    assert {"done", "superseded"} <= set(model.ended.values())
    for _ in range(200):  # and now everything succeeds
        for work in list(model.at_hand):
            model.done(work)
        model.next()
        model.now += 1.0
    assert model.held == []
    assert model.handled == model.versions, "the newest state of each uid was handled"
    assert model.queue.next(model.now + 60) is None
    assert model.queue.wakes_at() is None


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
