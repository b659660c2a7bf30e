"""A seed is one weather, and a weather has everything in it."""

import pytest

from tests.chaos.weather import OUTAGE_S, PAUSE_S, PODS, What, planned, weather

SEEDS = range(200)


def test_a_seed_is_one_weather_and_another_seed_another_one():
    assert weather(1, 40, 3) == weather(1, 40, 3)
    assert len({weather(seed, 40, 1) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("nodes", [1, 3])
def test_forty_seconds_have_every_fault(nodes):
    for seed in SEEDS:
        count = planned(weather(seed, 40, nodes))
        assert count[What.BROKER_KILLED] == 3
        assert count[What.POD_KILLED] + count[What.POD_STOPPED] + count[What.POD_PAUSED] == 11
        assert min(count[What.POD_KILLED], count[What.POD_STOPPED], count[What.POD_PAUSED]) >= 2
        assert count[What.PRODUCER_KILLED] == 3
        assert count[What.REGISTRY_AWAY] == 1
        assert count[What.NODE_AWAY] == (nodes > 1)


@pytest.mark.parametrize("duration_s", [10, 25, 40, 120])
def test_what_lasts_is_over_before_the_end(duration_s):
    for seed in SEEDS:
        lasting = [strike for strike in weather(seed, duration_s, 3) if strike.lasts_s > 4]
        assert all(strike.at_s + strike.lasts_s <= duration_s for strike in lasting)
        assert all(strike.at_s < duration_s for strike in weather(seed, duration_s, 3))


def test_a_consumer_that_sleeps_is_let_sleep():
    for seed in SEEDS:
        strikes = [strike for strike in weather(seed, 120, 1) if strike.target]
        assert {strike.target for strike in strikes} == set(PODS)
        asleep = [(strike.target, strike.at_s) for strike in strikes if strike.what is What.POD_PAUSED]
        struck = [
            strike
            for strike in strikes
            for pod, at_s in asleep
            if strike.target == pod and at_s < strike.at_s < at_s + PAUSE_S
        ]
        assert asleep
        assert struck == []


def test_the_registry_is_away_for_as_long_as_was_asked_for():
    away = [strike for strike in weather(1, 120, 1) if strike.what is What.REGISTRY_AWAY]
    assert [strike.lasts_s for strike in away] == [OUTAGE_S, OUTAGE_S, 15.0]
