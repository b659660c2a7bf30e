"""Random histories with faults at every step, through the consumer's real parts: in the end the registry is right.

`make simulate-consumer SEED=n HISTORIES=m` lives through any others. A failure prints its seed and a shortened history.
"""

from tests.simulation.consumer.chance import FAULTS
from tests.simulation.consumer.history import MISFORTUNES, SIMULATION

HISTORIES = 300
OUTCOMES = {f"result: {word}" for word in ("applied", "noop", "duplicate", "stale", "retry", "dead")}
OTHERS = {"older over newer", "many tries", "swept"}


def test_after_any_history_the_registry_says_what_the_stream_says_and_each_fault_has_struck():
    seen = SIMULATION.all_of(0, HISTORIES)
    assert {*FAULTS, *MISFORTUNES, *OUTCOMES, *OTHERS} - set(seen) == set(), "these faults never struck"
