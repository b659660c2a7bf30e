"""Who may lead, by what a Lease says and when it was seen to change: decisions and bodies only. Pure.

`producer/leader.py` reads and writes the Lease. The rules are those of Kubernetes' own leader election (client-go
tools/leaderelection), so that people and tools find what they know. Clocks of two machines are never compared: the
times in a Lease are for people, and what counts is how long ago *we* saw it change, by our own monotonic clock.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from msgspec import Struct

API: Final = "coordination.k8s.io/v1"


class Record(Struct, frozen=True):
    """What a Lease says about its holder. `holder` is empty when nobody holds it; unknown numbers are 0."""

    holder: str
    duration_s: int
    renewed: str
    transitions: int

    @classmethod
    def of(cls, lease: Mapping[str, Any]) -> Self:
        spec = lease.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration_s=spec.get("leaseDurationSeconds") or 0,
            renewed=spec.get("renewTime") or "",
            transitions=spec.get("leaseTransitions") or 0,
        )


class Sighting(Struct, frozen=True):
    """A record, and when it was first seen like this (monotonic seconds)."""

    record: Record
    at: float


class Create(Struct, frozen=True):
    """There is no Lease."""


class Renew(Struct, frozen=True):
    """It is ours."""


class Take(Struct, frozen=True):
    """It was released, or its holder has let it run out."""


class Wait(Struct, frozen=True):
    """Another one holds it; it runs out at `until` (monotonic seconds) unless it is renewed."""

    holder: str
    until: float


Claim = Create | Renew | Take


def sighted(before: Sighting | None, record: Record, now: float) -> Sighting:
    """Return the sighting of `record`: only a change is news."""
    return before if before is not None and before.record == record else Sighting(record, now)


def decide(seen: Sighting | None, me: str, now: float, duration_s: float) -> Claim | Wait:
    """Return what to do about the Lease; `seen` is None when there is none.

    The duration that the holder has written is the one that it keeps to; ours (`duration_s`) where it wrote none.
    A Lease in our own name needs no waiting: the name is a pod's, and its former process has ended.
    """
    if seen is None:
        return Create()
    record = seen.record
    if record.holder == me:
        return Renew()
    until = seen.at + (record.duration_s or duration_s)
    return Wait(record.holder, until) if record.holder and now < until else Take()


def claimed(lease: Mapping[str, Any], claim: Claim, me: str, duration_s: int, time: str) -> dict[str, Any]:
    """Return the Lease as a claim leaves it; `time` is RFC 3339 with exactly six digits (MicroTime).

    What others wrote to it (labels, owners, other fields) is kept, since an update replaces the whole object.
    """
    spec = dict(lease.get("spec") or {}) | {
        "holderIdentity": me,
        "leaseDurationSeconds": duration_s,
        "renewTime": time,
    }
    match claim:
        case Create():
            spec |= {"acquireTime": time, "leaseTransitions": 0}
        case Take():
            spec |= {"acquireTime": time, "leaseTransitions": Record.of(lease).transitions + 1}
        case Renew():
            pass
    return {**lease, "spec": spec}


def released(lease: Mapping[str, Any], time: str) -> dict[str, Any]:
    """Return the Lease without a holder: whoever sees it may take it at once."""
    spec = {**(lease.get("spec") or {}), "leaseDurationSeconds": 1, "renewTime": time}
    spec.pop("holderIdentity", None)
    return {**lease, "spec": spec}
