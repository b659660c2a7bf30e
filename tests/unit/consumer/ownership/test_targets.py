"""Whose a shard is meant to be, and what to do about its lease."""

import pytest

from consumer.ownership.suspicion import Suspicion
from consumer.ownership.targets import (
    GiveBack,
    Lease,
    Me,
    Sighting,
    Take,
    Wait,
    decide,
    sighted,
    target,
    valid_until,
)

ME = Me("pod-0", "i-1")
SHARDS = range(1024)
MEMBERS = [f"isvc-sync-consumer-7c9f-{letter}" for letter in "abcdefgh"]
SUSPICION = Suspicion(until=9, at_hand=7, deaths={7: 2})


def held_by(member: str, *, instance: str = "i-9", at: float = 100.0, first: bool = False, lease_s: float = 10.0):
    return Sighting(Lease(member, instance, lease_s, SUSPICION), 5, at, first=first)


# --- for whom ---


def test_everybody_says_the_same_whatever_order_they_see_the_members_in():
    assert [target(s, MEMBERS) for s in SHARDS] == [target(s, frozenset(reversed(MEMBERS))) for s in SHARDS]


def test_the_hash_is_the_same_in_every_process_and_release():
    """Two releases run side by side in a rolling update: they must agree."""
    assert [target(shard, ["a", "b", "c"]) for shard in range(8)] == ["a", "c", "c", "c", "a", "c", "b", "b"]


@pytest.mark.parametrize("count", range(1, 8))
def test_a_member_that_joins_takes_its_share_and_moves_no_other_shard(count):
    before, after = MEMBERS[:count], MEMBERS[: count + 1]
    moved = [shard for shard in SHARDS if target(shard, before) != target(shard, after)]
    assert {target(shard, after) for shard in moved} == {after[-1]}
    assert len(moved) == pytest.approx(len(SHARDS) / (count + 1), rel=0.25)


def test_the_shards_of_a_member_that_leaves_are_spread_over_all_others():
    gone = [shard for shard in SHARDS if target(shard, MEMBERS) == MEMBERS[0]]
    assert {target(shard, MEMBERS[1:]) for shard in gone} == set(MEMBERS[1:])


def test_without_members_a_shard_is_for_nobody():
    assert target(3, []) is None


# --- what to do ---


def test_a_shard_without_a_lease_is_taken_at_once():
    assert decide(Sighting(Lease(), 0, 100.0), ME, mine=True, now=100.0) == Take(0, True, Suspicion())


def test_a_free_shard_is_taken_at_once_with_what_is_suspected_in_it():
    free = Sighting(Lease(suspicion=Suspicion(until=9)), 5, 100.0)
    assert decide(free, ME, mine=True, now=100.0) == Take(5, True, Suspicion(until=9))


@pytest.mark.parametrize("seen", [Sighting(Lease(), 0, 0.0), held_by("pod-1", at=0.0)])
def test_what_is_meant_for_another_one_is_left_alone_even_when_it_has_run_out(seen):
    assert isinstance(decide(seen, ME, mine=False, now=1000.0), Wait)


@pytest.mark.parametrize(("now", "waits"), [(100.0, True), (109.999, True), (110.0, False)])
def test_a_lease_runs_out_when_it_was_seen_unchanged_for_as_long_as_its_holder_wrote(now, waits):
    decision = decide(held_by("pod-1"), ME, mine=True, now=now)
    assert decision == (Wait("pod-1", 110.0) if waits else Take(5, False, SUSPICION))


def test_the_length_that_counts_is_the_holders_own():
    assert decide(held_by("pod-1", lease_s=60.0), ME, mine=True, now=159.0) == Wait("pod-1", 160.0)


def test_a_restarted_pod_takes_its_predecessors_shards_at_once_and_knows_that_it_died():
    assert decide(held_by("pod-0", first=True), ME, mine=True, now=100.0) == Take(5, False, SUSPICION)


def test_a_namesake_that_took_it_from_us_is_alive_and_waited_for():
    assert decide(held_by("pod-0"), ME, mine=True, now=100.0) == Wait("pod-0", 110.0)


def test_what_is_in_our_own_name_is_taken_again_and_nobody_has_died():
    mine = held_by("pod-0", instance="i-1")
    assert decide(mine, ME, mine=True, now=100.0) == Take(5, True, Suspicion(until=9, deaths={7: 2}))


def test_what_is_in_our_own_name_and_meant_for_another_one_is_given_back():
    mine = held_by("pod-0", instance="i-1")
    assert decide(mine, ME, mine=False, now=100.0) == GiveBack(5, Suspicion(until=9, deaths={7: 2}))


# --- since when ---


def test_only_a_change_is_news():
    first = sighted(None, Lease("pod-1", "i-9", 10.0), 5, 100.0)
    assert first.first
    assert sighted(first, Lease("pod-1", "i-9", 10.0), 5, 107.0) is first
    renewed = sighted(first, Lease("pod-1", "i-9", 10.0), 6, 107.0)
    assert (renewed.at, renewed.first) == (107.0, False)


def test_the_holder_stops_before_anybody_may_think_that_it_has():
    """Stored after it was sent, seen after it was stored: the margin is all of that, and a fifth of the lease."""
    sent_at, stored_and_seen_at = 100.0, 100.0
    assert valid_until(sent_at, 10.0) == pytest.approx(108.0)
    assert valid_until(sent_at, 10.0) < held_by("pod-1", at=stored_and_seen_at).at + 10.0
