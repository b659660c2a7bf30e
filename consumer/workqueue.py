"""Which message is handled when: one at a time for each object, different objects side by side. Pure; time is given.

The rules are those of client-go's work queue, with a slot for each uid:

- one message of an object is at hand at any time;
- a newer state of the same uid replaces the waiting one, which leaves it the version it carried;
- several uids of one name run in the order in which they came (the old one's end before the new one's beginning);
- the first message of a quiet object is handled at once, the next one `pause_s` after that handling began: a quarter
  of all events have a successor within 0.1 s;
- a failed message waits for its time without holding up any other object; a newer state ends the wait.

Nothing is acknowledged here. What is returned as superseded may be acknowledged while the newer one is still held.
"""

import heapq
from itertools import count

import msgspec

from consumer.freshness import Order, compare
from consumer.work import Work, passed_over
from shared.objects import ObjectKey


class _Lane(msgspec.Struct):
    """One object. `waiting` holds at most one message for each uid, in stream order; the first one is next.

    Invariant: a lane exists exactly as long as something waits or is at hand, or its pause is not over.
    """

    waiting: dict[str, Work]
    at_hand: Work | None = None
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
        lane = self._lanes.setdefault(work.key, _Lane({}))
        waiting = lane.waiting.get(work.uid)
        superseded = []
        if _is_older(work, lane.at_hand):
            return [work]  # it must not replace the newer one, should that be given back
        if waiting is not None:
            if _is_older(work, waiting) or work.is_own_look:
                return [work]
            _take_over(work, waiting, self._prefix)
            superseded.append(waiting)
            if waiting.attempt > 1:
                lane.not_before = now  # a newer state is worth a try of its own
        lane.waiting[work.uid] = work
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
            work = lane.waiting.pop(next(iter(lane.waiting)))
            lane.at_hand = work
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
        """Give the message at hand back for another try; return the newer one that waits in its place, if any."""
        lane = self._put_down(work)
        work.creates_first = False  # the failed try may have created it
        newer = lane.waiting.get(work.uid)
        if newer is not None and newer.is_own_look:
            del lane.waiting[work.uid]  # the next try looks as well
            newer = None
        if newer is not None:
            _take_over(newer, work, self._prefix)
            self._arm(work.key, lane, now)
            return newer
        work.attempt += 1
        lane.waiting = {work.uid: work, **lane.waiting}
        lane.not_before = max(lane.not_before, now + delay_s)
        self._arm(work.key, lane, now)
        return None

    def held(self) -> list[Work]:
        """Return every message in hand, waiting or being handled."""
        lanes = self._lanes.values()
        waiting = [work for lane in lanes for work in lane.waiting.values()]
        return waiting + [lane.at_hand for lane in lanes if lane.at_hand is not None]

    def _put_down(self, work: Work) -> _Lane:
        lane = self._lanes[work.key]
        assert lane.at_hand is work, "only the message at hand can end"
        lane.at_hand = None
        return lane

    def _arm(self, key: ObjectKey, lane: _Lane, now: float) -> None:
        """Plan the lane's next turn (or its removal), unless a message of it is at hand: its end will do that."""
        if lane.at_hand is not None:
            return
        due = max(now, lane.not_before)
        if lane.scheduled_for is None or due < lane.scheduled_for or not lane.waiting:
            lane.scheduled_for = due
            heapq.heappush(self._schedule, (due, next(self._ticket), key))


def _is_older(work: Work, held: Work | None) -> bool:
    if held is None or held.uid != work.uid or work.freshness is None or held.freshness is None:
        return False
    return compare(work.freshness, held.freshness) is Order.OLDER


def _take_over(newer: Work, older: Work, prefix: str) -> None:
    """Let a newer state inherit what an older one would have told: its versions, and that no record exists yet."""
    newer.creates_first = older.creates_first
    newer.settled = newer.settled or older.settled
    if newer.seen is None or older.seen is None:
        return
    newer.seen = msgspec.structs.replace(newer.seen, passed=passed_over(older.seen, prefix) + newer.seen.passed)
