"""Random histories with faults at every step, through the producer's real cores: in the end the stream is the cluster.

`make simulate SEED=n HISTORIES=m` runs any others. A failure prints its seed and a shortened history.
"""

from tests.simulation.producer.chance import ANSWER_FAULTS, CLOCK_STANDS
from tests.simulation.producer.history import MISFORTUNES, SIMULATION

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
    seen = SIMULATION.all_of(0, HISTORIES)
    assert {*ANSWER_FAULTS, *MISFORTUNES, *OTHER_FAULTS} - set(seen) == set(), "these faults never struck"
