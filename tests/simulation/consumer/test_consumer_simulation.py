"""Random histories with faults at every step, through the consumer's real parts: in the end the registry is right.

`make simulate-consumer SEED=n HISTORIES=m` lives through any others. A failure prints its seed and a shortened history.
"""

import random
from collections import Counter

import pytest

from tests.simulation.consumer.chance import FAULTS
from tests.simulation.consumer.history import MISFORTUNES, History, Step, live, of, report, shortened
from tests.simulation.consumer.world import World

HISTORIES = 300
OUTCOMES = {f"result: {word}" for word in ("applied", "noop", "duplicate", "stale", "retry", "dead")}
OTHERS = {"older over newer", "many tries", "swept"}


def test_after_any_history_the_registry_says_what_the_stream_says_and_each_fault_has_struck():
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        try:
            seen.update(live(of(seed)))
        except AssertionError:
            pytest.fail(report(seed))
    assert {*FAULTS, *MISFORTUNES, *OUTCOMES, *OTHERS} - set(seen) == set(), "these faults never struck"


def test_a_seed_is_one_history_and_lives_it_the_same_way_each_time():
    assert of(7) == of(7) != of(8)
    random.seed(1)
    once = live(of(7))
    random.seed(2)
    assert live(of(7)) == once


def test_a_failing_history_is_shortened_to_what_fails(monkeypatch):
    def duplicate(self):
        raise AssertionError("two: too many")

    monkeypatch.setattr("tests.simulation.consumer.history._DEEDS", {"one": World.turn, "two": duplicate})
    steps = [Step("one", seed) for seed in range(20)]
    history = History(frozenset(FAULTS), (*steps, Step("two", 1)))
    assert shortened(history) == History(frozenset(), (Step("two", 1),))
