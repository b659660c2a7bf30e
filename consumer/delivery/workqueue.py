"""Which message is handled when: one at a time for each object, different objects side by side. Pure; time is given.

The rules are those of client-go's work queue, with a slot for each uid:

- one message of an object is at hand at any time;
- a newer state of the same uid and registered model replaces the waiting one, which leaves it the version it carried; a
  state of another model does not, because each model's deployment has a record of its own, however short it was (but
  nothing waits for one whose registry cannot be found, nor for one whose records are written, and the id is not);
- several uids of one name run in the order in which they came (the old one's end before the new one's beginning);
- the first message of a quiet uid is handled at once, the next one `pause_s` after that handling began: a quarter of
  all events have a successor within 0.1 s;
- a failed message waits for its time without holding up any other object; a newer state ends the wait.

Nothing is acknowledged here. What is returned as superseded may be acknowledged while the newer one is still held.
"""

import heapq
from collections.abc import Callable
from itertools import count

import msgspec

from consumer.delivery.work import Work, passed_over
from consumer.freshness import Order, compare
from consumer.observation import want
from shared.objects import ObjectKey


class _Lane(msgspec.Struct):
    """One object. `waiting` is in stream order; the first one is next. Neighbours of one uid differ in their model.

    Invariant: a lane exists exactly as long as something waits or is at hand, or its pause is not over.

    `outlived`: what is at hand was dropped with the rest. It holds up its successor and says nothing about it: it will
    neither have an effect nor be answered, so a message that comes anew must not lean on it.
    """

    waiting: list[Work]
    at_hand: Work | None = None
    outlived: bool = False
    last_uid: str | None = None
    not_before: float = 0.0
    scheduled_for: float | None = None


class WorkQueue:
    """The messages in hand. `prefix` is that of our labels, `pause_s` as described above."""

    def __init__(self, prefix: str, pause_s: float = 0.2) -> None:
        self._prefix = prefix
        self._pause_s = pause_s
        self._lanes: dict[ObjectKey, _Lane] = {}
        self._schedule: list[tuple[float, int, ObjectKey]] = []
        self._ticket = count()

    def add(self, work: Work, now: float) -> list[Work]:
        """Take a message in; return what is superseded by it, or the message itself when a newer one is in hand."""
        lane = self._lanes.setdefault(work.key, _Lane([]))
        superseded = []
        if _is_in_hand(work, lane):
            return []
        if not lane.outlived and _is_older(work, lane.at_hand):
            return [work]  # it must not replace the newer one, should that be given back
        places = [place for place, each in enumerate(lane.waiting) if each.uid == work.uid]
        newest = lane.waiting[places[-1]] if places else None
        if newest is not None and (_is_older(work, newest) or work.is_own_look):
            return [work]
        if newest is not None and newest.attempt > 1:
            lane.not_before = now  # a newer state is worth a try of its own
        if newest is not None and self._replaces(work, newest):
            if not _take_over(work, newest, self._prefix):
                superseded.append(newest)
            if work.seen is None:  # a look is answered after the events that came before it
                del lane.waiting[places[-1]]
                lane.waiting.append(work)
            else:
                lane.waiting[places[-1]] = work
        else:
            lane.waiting.append(work)
        self._arm(work.key, lane, now)
        return superseded

    def next(self, now: float) -> Work | None:
        """Return a message whose time has come and put it at hand; None when there is none now."""
        while self._schedule and self._schedule[0][0] <= now:
            due, _, key = heapq.heappop(self._schedule)
            lane = self._lanes.get(key)
            if lane is None or lane.scheduled_for != due:
                continue  # armed anew since
            lane.scheduled_for = None
            if not lane.waiting:
                del self._lanes[key]  # its pause is over and nothing came
                continue
            work = lane.waiting.pop(0)
            lane.at_hand = work
            lane.last_uid = work.uid
            lane.not_before = now + self._pause_s
            return work
        return None

    def wakes_at(self) -> float | None:
        """Return the time at which `next` may have something, None while nothing waits."""
        return self._schedule[0][0] if self._schedule else None

    def done(self, work: Work, now: float) -> None:
        """Say that the message at hand is finished."""
        lane = self._put_down(work)
        self._arm(work.key, lane, now)

    def again(self, work: Work, now: float, delay_s: float) -> Work | None:
        """Give the message at hand back for another try; return the newer one that waits in its place, if any.

        One that is to be buried waits for the newest of those whose place it took, and for no time.
        """
        lane = self._put_down(work)
        if work.burial and work.passed:
            lane.waiting[:0] = [_next_oldest(work), work]
            lane.not_before = now
            self._arm(work.key, lane, now)
            return None
        work.creates_first = False  # the failed try may have created it
        place, newer = next(((at, each) for at, each in enumerate(lane.waiting) if each.uid == work.uid), (0, None))
        if newer is not None and newer.is_own_look:
            del lane.waiting[place]  # the next try looks as well
            newer = None
        if newer is not None and not newer.burial and self._replaces(newer, work):
            kept = _take_over(newer, work, self._prefix)
            self._arm(work.key, lane, now)
            return None if kept else newer
        work.attempt += 1
        lane.waiting.insert(0, work)
        lane.not_before = max(lane.not_before, now + delay_s)
        self._arm(work.key, lane, now)
        return None

    def drop(self, among: Callable[[ObjectKey], bool]) -> int:
        """Forget what waits of some objects; return how many messages that were. What is at hand stays so, outlived."""
        dropped = 0
        for key, lane in [(key, lane) for key, lane in self._lanes.items() if among(key)]:
            dropped += len(lane.waiting)
            lane.waiting.clear()
            lane.outlived = lane.at_hand is not None
            if not lane.outlived:
                del self._lanes[key]
        return dropped

    def held(self) -> list[Work]:
        """Return every message in hand, waiting or being handled."""
        lanes = self._lanes.values()
        waiting = [work for lane in lanes for work in lane.waiting]
        return waiting + [lane.at_hand for lane in lanes if lane.at_hand is not None]

    def _replaces(self, newer: Work, older: Work) -> bool:
        """Whether nothing is lost when only the newer one of two states of a uid is handled, or nothing but in vain."""
        if newer.seen is None or older.seen is None or older.yields or older.recorded:
            return True
        return want(newer.seen, self._prefix).model == want(older.seen, self._prefix).model

    def _put_down(self, work: Work) -> _Lane:
        lane = self._lanes[work.key]
        assert lane.at_hand is work, "only the message at hand can end"
        lane.at_hand, lane.outlived = None, False
        return lane

    def _arm(self, key: ObjectKey, lane: _Lane, now: float) -> None:
        """Plan the lane's next turn (or its removal), unless a message of it is at hand: its end will do that."""
        if lane.at_hand is not None:
            return
        another_uid = bool(lane.waiting) and lane.waiting[0].uid != lane.last_uid
        due = now if another_uid else max(now, lane.not_before)
        if lane.scheduled_for is None or due < lane.scheduled_for:
            lane.scheduled_for = due
            heapq.heappush(self._schedule, (due, next(self._ticket), key))


def _is_older(work: Work, held: Work | None) -> bool:
    if held is None or held.uid != work.uid or work.freshness is None or held.freshness is None:
        return False
    return compare(work.freshness, held.freshness) is Order.OLDER


def _is_in_hand(work: Work, lane: _Lane) -> bool:
    """Whether this is one more delivery of a message in hand: that answers for both, with the address of the later one.

    It must not be answered by itself: the acknowledgement would be the last word on a message whose effect is to come.
    """
    if work.is_own_look:
        return False
    sequence = work.message.sequence
    at_hand = [] if lane.at_hand is None or lane.outlived else [lane.at_hand]
    for held in (*lane.waiting, *at_hand):
        for each in (held, *held.passed):
            if each.message.sequence == sequence:
                each.message = work.message
                return True
    return False


def _take_over(newer: Work, older: Work, prefix: str) -> bool:
    """Let a newer state inherit what an older one would have told: its versions, and that no record exists yet.

    A look, all records that the older one names. Return whether the older message stays in hand with the newer one,
    which alone knows its version from now on.
    """
    newer.creates_first = older.creates_first
    newer.settled = newer.settled or older.settled
    newer.named = tuple(dict.fromkeys(older.named + newer.named))
    newer.passed, older.passed, place = [*older.passed, *newer.passed], [], len(older.passed)
    if newer.seen is None or older.seen is None:
        return False
    was = want(older.seen, prefix).version
    following = newer.seen.passed[0].version if newer.seen.passed else want(newer.seen, prefix).version
    newer.seen = msgspec.structs.replace(newer.seen, passed=passed_over(older.seen, prefix) + newer.seen.passed)
    if was == following:
        return False
    newer.passed.insert(place, older)
    return True


def _next_oldest(work: Work) -> Work:
    """Undo the newest takeover of a message, and return whose place it took, with all that had come before."""
    older = work.passed.pop()
    assert work.seen is not None, "a look takes no event's place"
    assert older.seen is not None, "a look takes no event's place"
    fresh = older.seen.freshness
    told = [(each.epoch, each.resource_version) for each in work.seen.passed]
    place = told.index((fresh.epoch, fresh.resource_version))
    older.seen = msgspec.structs.replace(older.seen, passed=work.seen.passed[:place])
    older.passed, work.passed = work.passed, []
    older.creates_first = False  # the one that took its place may have created it
    work.seen = msgspec.structs.replace(work.seen, passed=work.seen.passed[place + 1 :])
    return older
