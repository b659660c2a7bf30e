"""Random histories with faults at every step, through the producer's real cores: in the end the stream is the cluster.

`make simulate SEED=n HISTORIES=m` runs any others. A failure prints its seed and a shortened history.
"""

import random
from collections import Counter

import pytest

from tests.simulation.producer.chance import ANSWER_FAULTS, CLOCK_STANDS
from tests.simulation.producer.history import MISFORTUNES, History, Step, live, of, report, shortened
from tests.simulation.producer.world import World

HISTORIES = 400
OTHER_FAULTS = {
    CLOCK_STANDS,
    "a person released deletes",
    "audit concluded",
    "audit found a restore",
    "objects left the scope",
    "crash before a publish",
    "crash between publish and PubAck",
    "crash after all",
    "an old leader publishes",
    "back-pressure",
    "deletes held",
    "position in the future",
    *(f"trouble: {reason}" for reason in ("absent", "closed", "expired", "forbidden", "inventory", "lost")),
    *(f"trouble: {reason}" for reason in ("malformed", "refused", "restored", "resync", "silent", "throttled")),
    *(f"trouble: {reason}" for reason in ("unauthorized", "unavailable")),
}


def test_after_any_history_the_stream_says_what_the_cluster_says_and_each_fault_has_struck():
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        try:
            seen.update(live(of(seed)))
        except AssertionError:
            pytest.fail(report(seed))
    assert {*ANSWER_FAULTS, *MISFORTUNES, *OTHER_FAULTS} - set(seen) == set(), "these faults never struck"


def test_a_seed_is_one_history_and_lives_it_the_same_way_each_time():
    assert of(7) == of(7) != of(8)
    random.seed(1)
    once = live(of(7))
    random.seed(2)
    assert live(of(7)) == once


def test_a_failing_history_is_shortened_to_what_fails(monkeypatch):
    def duplicate(self):
        raise AssertionError("two: too many")

    monkeypatch.setattr("tests.simulation.producer.history._DEEDS", {"one": World.turn, "two": duplicate})
    steps = [Step("one", seed) for seed in range(20)]
    history = History(frozenset(ANSWER_FAULTS), (*steps, Step("two", 1)))
    assert shortened(history) == History(frozenset(), (Step("two", 1),))
