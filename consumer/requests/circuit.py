"""When to leave a server alone that does not answer: a circuit breaker, as values. Pure; time is given.

    Closed ───── FAILURES_MAX failures in a row ─────► Open ──── its time has come ────► HalfOpen: one probe
      ▲                                                 ▲                                    │
      └───────────── an answer that is well ────────────┴────────── the probe fails ─────────┘

While it is open nothing is sent, so that the objects of other registries get the time that would pass in waiting. It
stays open for a quarter of the time for which the server has been away already: a return is noticed in proportion, soon
after a restart, and without a crowd at the door after an outage of hours. `registry_client.py` asks and tells it, and
`kube_circuit.py` with a smaller most.
"""

from enum import Enum, auto
from typing import Final

import msgspec

FAILURES_MAX: Final = 4  # as many as are in flight at once: one time-out of all of them is enough
OPEN_S_MIN: Final = 1.0
OPEN_S_MAX: Final = 30.0
OPEN_SHARE: Final = 0.25  # of the outage so far
PROBE_WAIT_S: Final = 1.0  # for whoever comes while the probe is under way


class Bearing(Enum):
    """What the end of a request says about the server's health."""

    WELL = auto()
    ILL = auto()
    DEAD = auto()  # nothing works: no need to count
    NOTHING = auto()


class Closed(msgspec.Struct, frozen=True):
    """All requests go through; the last `failures` of them failed."""

    failures: int = 0


class Open(msgspec.Struct, frozen=True):
    """Nothing is sent until then; away `since`. Both in the seconds of one monotonic clock."""

    since: float
    until: float


class HalfOpen(msgspec.Struct, frozen=True):
    """One request is under way, and decides."""

    since: float


Circuit = Closed | Open | HalfOpen
CIRCUIT_STATES: Final = ("closed", "open", "half-open")


class Admission(msgspec.Struct, frozen=True):
    """The answer to a request that wants to leave: `wait_s` 0 lets it go, as the probe if `is_probe`."""

    circuit: Circuit
    wait_s: float = 0.0
    is_probe: bool = False


def admit(circuit: Circuit, now: float) -> Admission:
    """Return whether a request may leave now."""
    match circuit:
        case Closed():
            return Admission(circuit)
        case Open(since, until) if now >= until:
            return Admission(HalfOpen(since), is_probe=True)
        case Open(_, until):
            return Admission(circuit, until - now)
        case HalfOpen():
            return Admission(circuit, PROBE_WAIT_S)


def settle(
    circuit: Circuit, bearing: Bearing, now: float, *, is_probe: bool, open_s_max: float = OPEN_S_MAX
) -> Circuit:
    """Return the circuit after a request that was let go has ended.

    Of those that left before it opened only a success counts. A probe that says nothing (cancelled, say) makes room for
    the next one. `open_s_max`: the longest time between two probes.
    """
    match circuit, bearing:
        case _, Bearing.WELL:
            return Closed()
        case Closed(failures), Bearing.ILL if failures + 1 < FAILURES_MAX:
            return Closed(failures + 1)
        case Closed(), Bearing.ILL | Bearing.DEAD:
            return Open(now, now + OPEN_S_MIN)
        case HalfOpen(since), Bearing.ILL | Bearing.DEAD if is_probe:
            return Open(since, now + min(open_s_max, max(OPEN_S_MIN, OPEN_SHARE * (now - since))))
        case HalfOpen(since), Bearing.NOTHING if is_probe:
            return Open(since, now)
        case _:
            return circuit


def name_of(circuit: Circuit) -> str:
    """Return the state's name, for the gauge and the log."""
    match circuit:
        case Closed():
            return "closed"
        case Open():
            return "open"
        case HalfOpen():
            return "half-open"
