"""Two consumers never own the same shard at the same moment, whatever is paused, killed, lost or late."""

from collections import Counter

import pytest

from tests.simulation.ownership.group import Group

SEEDS = range(30)


@pytest.fixture(scope="module")
def runs():
    groups = []
    for seed in SEEDS:
        group = Group(seed)
        group.run()
        groups.append(group)
    yield groups
    for group in groups:
        group.close()


def test_no_shard_ever_has_two_owners(runs):
    assert {seed: found for seed, group in enumerate(runs) if (found := group.overlaps())} == {}


def test_after_the_troubles_every_shard_is_with_the_one_it_is_meant_for(runs):
    assert {seed: shards for seed, group in enumerate(runs) if (shards := group.unowned())} == {}


def test_no_process_met_an_error_of_its_own(runs):
    assert [error for group in runs for process in group.processes for error in process.host.errors] == []


def test_every_trouble_has_happened(runs, record_property):
    faults = sum((group.faults for group in runs), Counter())
    seen = sum((group.seen for group in runs), Counter())
    record_property("figures", f"{len(runs)} runs: {dict(faults)}, {dict(seen)}")
    assert min(faults[what] for what in ("pause", "kill", "stop", "outage", "join")) > 10
    assert min(faults[what] for what in ("slow", "lost request", "lost reply", "late")) > 100
    assert min(seen[what] for what in ("taken, clean True", "taken, clean False", "lost, expired")) > 50
