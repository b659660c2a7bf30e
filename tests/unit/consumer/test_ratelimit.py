"""A window that slides, on times that the test makes up."""

import random

from consumer.ratelimit import RateLimit


def test_so_many_are_allowed_at_once_and_the_next_when_the_first_is_old():
    limit = RateLimit(3, 60.0)
    for now in (100.0, 101.0, 130.0):
        assert limit.wait_s("a", now) == 0.0
        limit.spend("a", now)
    assert limit.wait_s("a", 130.0) == 30.0
    assert limit.wait_s("a", 159.0) == 1.0
    assert limit.wait_s("a", 160.0) == 0.0
    limit.spend("a", 160.0)
    assert limit.wait_s("a", 160.0) == 1.0, "the second one is 1 s younger than the first"


def test_keys_do_not_count_against_each_other():
    limit = RateLimit(1, 60.0)
    limit.spend("a", 0.0)
    assert (limit.wait_s("a", 0.0), limit.wait_s("b", 0.0)) == (60.0, 0.0)


def test_no_window_of_any_history_holds_more_than_allowed():
    chance = random.Random(7)
    limit, now, made = RateLimit(3, 60.0), 0.0, []
    for _ in range(5_000):
        now += chance.expovariate(1.0)
        if limit.wait_s("a", now) == 0.0:
            limit.spend("a", now)
            made.append(now)
    assert len(made) > 200, "the limit is met all the time"
    assert all(later - earlier >= 60.0 for earlier, later in zip(made, made[3:], strict=False))


def test_who_is_quiet_is_forgotten_and_who_is_not_stays():
    limit = RateLimit(2, 60.0)
    limit.spend("busy", 0.0)
    for number in range(100):
        limit.spend(f"quiet {number}", float(number) / 100)
    limit.spend("busy", 30.0)
    limit.spend("busy", 59.0)
    assert len(limit) == 101
    limit.spend("new", 80.0)
    assert len(limit) == 2
    assert limit.wait_s("busy", 80.0) == 10.0
