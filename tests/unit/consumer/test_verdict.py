"""What a failure means: a table, and that no number of attempts turns a transient one into a dead letter."""

import pytest

from consumer.verdict import DELAY_S_MAX, DELAY_S_MIN, LOOK_AGAIN_S, Ack, Bury, Retry, verdict
from shared.errors import (
    BadEventError,
    ConflictError,
    NotFoundError,
    NotSentError,
    PermanentError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
    UnsettledError,
)


def test_no_failure_is_done():
    assert verdict(None, 1, 0.5) == Ack()


@pytest.mark.parametrize("attempt", [1, 2, 1000])
@pytest.mark.parametrize("failure", [PermanentError("no such model"), BadEventError("no such model")], ids=repr)
def test_what_can_never_succeed_is_buried_with_its_reason(failure, attempt):
    assert verdict(failure, attempt, 0.5) == Bury("no such model")


TRANSIENT = [
    TransientError("x"),
    UnreachableError("x"),
    UnauthorizedError("x"),
    ConflictError("x"),
    NotFoundError("x"),
    ValueError("x"),
    KeyError("x"),
]


@pytest.mark.parametrize("failure", TRANSIENT, ids=repr)
@pytest.mark.parametrize("attempt", [1, 2, 5, 17, 10**6])
def test_everything_else_is_tried_again_without_limit(failure, attempt):
    assert isinstance(verdict(failure, attempt, 0.5), Retry)


@pytest.mark.parametrize(
    ("attempt", "ceiling_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (7, 32.0), (8, 60.0), (1000, 60.0)]
)
def test_the_delay_doubles_up_to_its_limit_and_is_spread_over_the_whole_range(attempt, ceiling_s):
    delays = [verdict(TransientError("x"), attempt, chance).delay_s for chance in (0.0, 0.5, 0.75)]
    assert delays == [DELAY_S_MIN, max(DELAY_S_MIN, ceiling_s / 2), max(DELAY_S_MIN, ceiling_s * 0.75)]
    assert max(delays) <= DELAY_S_MAX


@pytest.mark.parametrize("failure", [ConflictError("x"), NotFoundError("x")], ids=repr)
def test_a_conflict_is_looked_at_again_at_once_but_only_the_first_time(failure):
    assert verdict(failure, 1, 0.9) == Retry(LOOK_AGAIN_S, "x")
    assert verdict(failure, 2, 0.9) == Retry(0.9, "x")


@pytest.mark.parametrize(
    ("wish_s", "chance", "delay_s"), [(10.0, 0.0, 10.0), (10.0, 0.5, 15.0), (3600.0, 0.0, 60.0), (0.0, 0.5, 0.25)]
)
def test_the_servers_own_wish_is_a_lower_bound(wish_s, chance, delay_s):
    assert verdict(TransientError("x", retry_after_s=wish_s), 1, chance).delay_s == delay_s


@pytest.mark.parametrize("attempt", [1, 1000])
@pytest.mark.parametrize(("chance", "delay_s"), [(0.0, 4.0), (0.5, 4.5)])
def test_what_was_held_back_comes_when_it_may_and_not_all_at_once(attempt, chance, delay_s):
    held = verdict(NotSentError("away", retry_after_s=4.0), attempt, chance)
    assert held == Retry(delay_s, "away", held=True)


def test_a_newer_state_does_not_wait_for_one_that_nobody_can_place():
    assert verdict(UnsettledError("several registries"), 5, 0.5).yields
    assert not verdict(TransientError("away"), 5, 0.5).yields


def test_what_was_tried_is_not_held():
    assert not verdict(TransientError("x", retry_after_s=4.0), 1, 0.5).held


def test_a_failure_without_a_text_is_named_by_its_class():
    assert verdict(ValueError(), 1, 0.5).reason == "ValueError"


def test_attempts_count_from_one():
    with pytest.raises(AssertionError, match="from one"):
        verdict(None, 0, 0.5)
