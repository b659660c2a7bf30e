"""Deadlines from one anchor: what is late once makes nothing else late."""

import math
import time

import pytest
from msgspec.structs import replace

from replay.pacing import Bound, Pacer, moment_s, parse_bound, parse_speed
from tests.unit.replay.replayed import KEY, captured, isvc


class Time:
    """A clock that only sleeps and work move. `overshoot_s`: how much too long each sleep takes."""

    def __init__(self, overshoot_s: float = 0.0) -> None:
        self.now_s = 5000.0
        self._overshoot_s = overshoot_s

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, for_s: float) -> None:
        self.now_s += for_s + self._overshoot_s


async def played(pacer: Pacer, time: Time, moments: list[float], work: dict[float, float] | None = None) -> list[float]:
    """Return when each event was let go, in seconds after the first; `work`: how long its handling takes."""
    begun, gone = time(), []
    for moment in moments:
        await pacer.until(1_000_000.0 + moment)
        gone.append(round(time() - begun, 6))
        time.now_s += (work or {}).get(moment, 0.0)
    return gone


def paced(factor: float = 1.0, overshoot_s: float = 0.0) -> tuple[Pacer, Time]:
    time = Time(overshoot_s)
    return Pacer(factor, time, time.sleep), time


async def test_ten_seconds_take_ten_seconds():
    pacer, time = paced()
    assert await played(pacer, time, [0, 2.5, 7, 10]) == [0, 2.5, 7, 10]


async def test_slow_handling_in_the_middle_delays_only_what_was_due_meanwhile():
    pacer, time = paced()
    assert await played(pacer, time, [0, 2, 3, 4, 9, 10], work={2: 2.5}) == [0, 2, 4.5, 4.5, 9, 10]
    assert pacer.lateness.end_s == 0


async def test_the_cost_of_each_event_does_not_add_up():
    moments = [number / 100 for number in range(1001)]
    pacer, time = paced()
    gone = await played(pacer, time, moments, work=dict.fromkeys(moments, 0.008))
    assert gone[-1] == pytest.approx(10, rel=0.02)


async def test_sleeps_that_take_too_long_do_not_add_up():
    pacer, time = paced(overshoot_s=0.004)
    gone = await played(pacer, time, [number / 100 for number in range(1001)])
    assert gone[-1] == pytest.approx(10.004)


async def test_a_sleep_that_ends_early_is_slept_to_its_end():
    time = Time()

    async def half(for_s: float) -> None:
        time.now_s += for_s / 2 if for_s > 1e-6 else for_s

    assert await played(Pacer(1.0, time, half), time, [0, 10]) == [0, 10]


async def test_a_factor_divides_the_time():
    pacer, time = paced(10.0)
    assert await played(pacer, time, [0, 5, 10]) == [0, 0.5, 1]


async def test_max_never_waits_and_is_never_late():
    pacer, time = paced(math.inf)
    assert await played(pacer, time, [0, 5, 10], work={0: 3}) == [0, 3, 3]
    assert pacer.lateness.events == 0


async def test_an_event_older_than_its_predecessor_is_due_with_it():
    pacer, time = paced()
    assert await played(pacer, time, [0, 5, 4, 6]) == [0, 5, 5, 6]
    assert pacer.lateness.worst_s == 0


async def test_lateness_is_told_at_worst_and_at_the_end():
    pacer, time = paced()
    await played(pacer, time, [0, 1, 2, 9, 10], work={1: 4, 9: 1.25})
    late = pacer.lateness
    assert (late.events, late.late) == (5, 2)
    assert (late.worst_s, late.end_s) == pytest.approx((3, 0.25))


async def test_what_is_the_timers_fault_is_not_called_late():
    pacer, time = paced(overshoot_s=0.009)
    await played(pacer, time, [0, 1, 2])
    assert pacer.lateness.late == 0


@pytest.mark.parametrize(("text", "factor"), [("1x", 1), ("10x", 10), ("0.5x", 0.5), ("3", 3), ("max", math.inf)])
def test_a_speed_is_a_factor_or_max(text, factor):
    assert parse_speed(text) == factor


@pytest.mark.parametrize("text", ["0x", "-1x", "x", "", "fast", "nanx", "infx", "1 x", "1xx", "1e999"])
def test_another_speed_is_refused(text):
    with pytest.raises(ValueError, match="must be a factor such as 1x"):
        parse_speed(text)


def test_a_bound_is_a_sequence_or_a_time():
    assert parse_bound("") is None
    assert parse_bound("12") == Bound(seq=12)
    assert parse_bound("2026-11-30T10:00:00Z") == parse_bound("2026-11-30T12:00:00+02:00") == Bound(at_s=1796032800.0)


def test_a_time_without_offset_is_utc(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert parse_bound("2026-11-30T10:00:00") == parse_bound("2026-11-30T10:00:00Z")
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "²"])
def test_another_bound_is_refused(text):
    with pytest.raises(ValueError, match="must be a stream sequence"):
        parse_bound(text)


def at(seq: int, at_s: float):
    return captured(seq, isvc(KEY, "u-1", 7), at_s=at_s)


@pytest.mark.parametrize("bound", ["12", "2026-11-30T10:00:02Z"])
def test_a_bound_includes_the_event_that_stands_there(bound):
    place = parse_bound(bound)
    events = [at(11, 1.0), at(12, 2.0), at(13, 3.0)]
    assert [place.is_after(each) for each in events] == [True, False, False]
    assert [place.is_before(each) for each in events] == [False, False, True]


def test_an_event_counts_from_when_it_was_stored_else_from_when_it_was_seen():
    event = at(11, 1.0)
    stored = replace(event, position=replace(event.position, time="2026-11-30T10:00:09.123456789Z"))
    unstored = replace(event, position=replace(event.position, time=""))
    assert moment_s(stored) == pytest.approx(1796032809.123456, abs=0.001)
    assert moment_s(unstored) == 1796032801.0
