"""Who owns a shard: by what its lease says, and by when it was seen to change. Decisions only. Pure.

`consumer/shards.py` reads and writes the leases. Clocks of two machines are never compared: a lease runs out when *we*
have seen it unchanged for as long as its holder wrote into it, by our own monotonic clock. The holder counts from a
moment before that, the sending of its last renewal, and stops earlier (`valid_until`). So the two never overlap.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from consumer.ownership.suspicion import Suspicion

_FENCE_SHARE: Final = 0.8  # of the lease: the rest is for what is on the wire, and for clocks that do not run alike


class Me(Struct, frozen=True, omit_defaults=True):
    """Who asks. `member` is the pod's name, which its next process bears, too; `instance` is this process's alone.

    `cluster_id` is empty where an earlier release speaks. `joining`: it does nothing yet, and may still find that it
    has to give way (`stranger_among`).
    """

    member: str
    instance: str
    cluster_id: str = ""
    joining: bool = False

    def is_stranger_to(self, cluster_id: str) -> bool:
        """Whether it is another cluster's, as far as both say whose they are."""
        return _differ(self.cluster_id, cluster_id)


class Seat(Struct, frozen=True):
    """A living member, as its message says, and the sequence of that."""

    me: Me
    sequence: int


class Lease(Struct, frozen=True, omit_defaults=True):
    """What the lease of a shard says. `member` is empty when the shard is free. It lasts `lease_s` from being seen."""

    member: str = ""
    instance: str = ""
    lease_s: float = 0.0
    suspicion: Suspicion = Suspicion()
    cluster_id: str = ""


class Sighting(Struct, frozen=True):
    """A lease, its sequence (0 when there is none), and when it was first seen like this (monotonic seconds).

    `first`: it has not changed since this process looked for the first time.
    """

    lease: Lease
    sequence: int
    at: float
    first: bool = False


class Take(Struct, frozen=True):
    """Take the shard by replacing message `expect`. `clean`: nobody died with it, as far as anybody knows."""

    expect: int
    clean: bool
    suspicion: Suspicion


class Wait(Struct, frozen=True):
    """Another one holds it, until `until` (monotonic seconds) unless it is renewed; `inf`: it is not for us."""

    member: str
    until: float


class GiveBack(Struct, frozen=True):
    """It is in our name by a request whose answer was lost, and it is not for us: free it."""

    expect: int
    suspicion: Suspicion


def sighted(before: Sighting | None, lease: Lease, sequence: int, now: float) -> Sighting:
    """Return the sighting of a lease: only a change is news.

    `now` is from after the answer. From before the question, a lease that was written in between would seem older than
    it is.
    """
    if before is not None and before.sequence == sequence:
        return before
    return Sighting(lease, sequence, now, first=before is None)


def target(shard: int, members: Iterable[str]) -> str | None:
    """Return the member for which a shard is meant, None without members: rendezvous hashing.

    Everybody who sees the same members says the same. One that joins takes its share, 1/N, from all others; the shards
    of one that leaves are spread over all others; no other shard moves.
    """
    return max(members, key=lambda member: (_weight(member, shard), member), default=None)


def decide(seen: Sighting, me: Me, *, mine: bool, now: float) -> Take | Wait | GiveBack:
    """Return what to do about a shard that we do not own; `mine`: it is meant for us.

    A lease in our own member's name that was there when we started needs no waiting: the pod's former process is dead.
    """
    lease = seen.lease
    if lease.instance == me.instance and lease.member:
        # An answer was lost, or we let it lapse and nobody took it: either way nobody has died.
        suspicion = lease.suspicion.after_life()
        return Take(seen.sequence, True, suspicion) if mine else GiveBack(seen.sequence, suspicion)
    if not mine:
        return Wait(lease.member, float("inf"))
    if not lease.member:
        return Take(seen.sequence, True, lease.suspicion.after_life())
    until = seen.at + lease.lease_s
    if now < until and not (seen.first and lease.member == me.member):
        return Wait(lease.member, until)
    return Take(seen.sequence, False, lease.suspicion)


def stranger_among(seats: Iterable[Seat], me: Me, sequence: int | None) -> Me | None:
    """Return the member of another cluster to whom we must give way when we join, None when we may go on.

    `sequence` is that of our own message, which is written once while we join; None before that. Whoever works already
    goes on. Of several who join at the same time, the one whose message came first: the others read it after they have
    written theirs, so exactly one of them finds nobody.
    """
    for seat in seats:
        is_first = sequence is None or seat.sequence < sequence
        if seat.me.is_stranger_to(me.cluster_id) and (is_first or not seat.me.joining):
            return seat.me
    return None


class Foreign(Struct, frozen=True):
    """A lease of another cluster. `renewed`: its owner lives. Else nobody knows, `until` (monotonic seconds)."""

    shard: int
    lease: Lease
    renewed: bool
    until: float


def foreign_among(seen: Mapping[int, Sighting], me: Me, now: float) -> Foreign | None:
    """Return a lease that another cluster may still hold, a renewed one first; None when there is none.

    It outlives its owner, so that it stands there proves nobody's life: we wait until it is renewed, or has run out.
    """
    found = [
        Foreign(shard, each.lease, not each.first, each.at + each.lease.lease_s)
        for shard, each in seen.items()
        if each.lease.member and _differ(each.lease.cluster_id, me.cluster_id)
    ]
    alive = [each for each in found if each.renewed or now < each.until]
    return max(alive, key=lambda each: each.renewed, default=None)


def valid_until(sent_at: float, lease_s: float) -> float:
    """Return the fence: until when the holder may act, by the time *before* its last successful renewal was sent.

    Not of the answer: after a pause, an answer that waited in a buffer would make an old renewal look fresh.
    """
    return sent_at + _FENCE_SHARE * lease_s


def _weight(member: str, shard: int) -> bytes:
    return blake2b(f"{member}/{shard}".encode(), digest_size=8).digest()


def _differ(cluster_id: str, ours: str) -> bool:
    return "" not in (cluster_id, ours) and cluster_id != ours
