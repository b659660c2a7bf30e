"""A model of the queue under random operations: nothing is lost, doubled or overtaken."""

import random

import pytest

from consumer.delivery.work import Work
from consumer.delivery.workqueue import WorkQueue
from consumer.freshness import Order, compare
from tests.unit.consumer.deliveries import small_work
from tests.unit.consumer.worlds import PREFIX

PAUSE_S = 0.2


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
