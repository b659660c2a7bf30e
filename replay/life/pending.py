"""What is pending or wrong about one uid of an object, each with its cause. Pure.

The order is that of importance: the first one is why a record is not there, or is not right. What the registry would
have to be told is asked of the sweep's own comparison (`consumer/sweep/compare.py`): `explain`, `drift` and an event
agree.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from consumer.actions import Action, DeferPatch, Reject, UpdateRecord
from consumer.plan import Records, plan
from consumer.sweep.compare import Comparison, Difference, Reason
from consumer.sweep.shelf import Shelf
from consumer.writeback import WriteCost
from replay.life.facts import Delivery, Evidence, Standing
from replay.life.words import changed_words


class Cause(StrEnum):
    """Why a record is not there, or not right; the value is for programs."""

    UNKNOWN = "unknown"  # nobody knows such an object
    NOT_INDEXED = "not-indexed"
    NO_KIND = "kind-not-served"
    NOT_SYNCED = "kind-not-synced"
    NOT_SELECTED = "namespace-not-selected"
    NOT_PUBLISHED = "not-published"
    HELD = "held"
    DEAD_LETTER = "dead-letter"
    REJECTED = "rejected"
    NOT_ALLOWED = "registry-not-allowed"
    NO_REGISTRY = "no-registry"
    UNREAD = "registry-not-read"
    NOT_HANDLED = "not-handled"
    DIFFERS = "differs"
    DEFERRED = "write-back-deferred"


class Pending(msgspec.Struct, frozen=True):
    """One thing that is pending or wrong: a sentence without full stop."""

    cause: Cause
    what: str


COSTS: Final = {
    WriteCost.FREE: "nothing",
    WriteCost.POD_START: "one pod would be started and thrown away",
    WriteCost.RESTART: "serving pods would be replaced",
}


def pending(uid: str, evidence: Evidence) -> tuple[Pending, ...]:
    """Return what is pending or wrong about one uid, the decisive one first."""
    standing = evidence.standings.get(uid)
    if standing is None:
        return tuple(_strays(uid, evidence))
    decided = _decided(standing, evidence)
    rejected = [action.reason for action in decided if isinstance(action, Reject)]
    found = [
        *_never_told(uid, evidence),
        *_without_home(standing, evidence),
        *_refusals(uid, standing, rejected, evidence),
        *_not_told(uid, evidence),
        *_not_handled(uid, evidence),
    ]
    found += _old_letter(uid, standing, rejected, evidence)
    found += _differs(standing, evidence, under_way=any(each.cause in _UNDER_WAY for each in found))
    return (*found, *_strangers(standing, decided, evidence), *_deferred(decided, evidence))


def home_records(standing: Standing, evidence: Evidence) -> Records:
    """Return a uid's records in its own registry, by model."""
    if standing.home is None or standing.home in evidence.unread:
        return {}
    return _comparison(evidence).records(standing.seen, standing.home)


_UNDER_WAY: Final = frozenset({Cause.NOT_PUBLISHED, Cause.NOT_HANDLED, Cause.NOT_SYNCED, Cause.NOT_SELECTED})


def _comparison(evidence: Evidence) -> Comparison:
    markers = {} if evidence.marker is None else {evidence.key.kind: evidence.marker}
    dead = frozenset() if evidence.letter is None else frozenset({evidence.key})
    homes = {standing.home for standing in evidence.standings.values() if standing.home is not None}
    shelves = {
        name: Shelf(evidence.settings.us.cluster_id) for name in {*evidence.records, *homes} - {*evidence.unread}
    }
    for name, shelf in shelves.items():
        for record in evidence.records.get(name, ()):
            shelf.add(record)
    return Comparison(shelves, markers, dead, evidence.settings)


def _is_readable(standing: Standing, evidence: Evidence) -> bool:
    return standing.home is not None and standing.home not in evidence.unread


def _decided(standing: Standing, evidence: Evidence) -> tuple[Action, ...]:
    if not _is_readable(standing, evidence):
        return ()
    return plan(standing.seen, home_records(standing, evidence), standing.facts, evidence.settings)


def _strays(uid: str, evidence: Evidence) -> Iterator[Pending]:
    """Say which records of a uid that nothing else tells of are not closed."""
    for name, records in evidence.records.items():
        for record in records:
            stamp = record.stamp
            if stamp is not None and stamp.uid == uid and record.deployed is not False:
                why = f"record {record.id} in {name} is not UNDEPLOYED, and no event tells of its object any more"
                yield Pending(Cause.DIFFERS, why)


# --- between the cluster and the stream -------------------------------------------------------------------------------


def _never_told(uid: str, evidence: Evidence) -> Iterator[Pending]:
    """Say why an object that lives has no event."""
    live, key = evidence.live, evidence.key
    if live is None or live.seen is None or live.seen.uid != uid or evidence.events_of(uid):
        return
    if evidence.marker is None:
        yield Pending(
            Cause.NOT_SYNCED,
            f"the stream does not know it, and no producer has ever compared the kind {key.kind}: does one run, and is "
            f"{key.kind} in KINDS?",
        )
    elif evidence.marker.scope and key.namespace not in evidence.marker.scope:
        yield Pending(
            Cause.NOT_SELECTED,
            f"the producer does not select namespace {key.namespace}: it compares {_names(evidence.marker.scope)} "
            "(NAMESPACES, NAMESPACE_SELECTOR)",
        )
    else:
        yield Pending(
            Cause.NOT_PUBLISHED,
            "the stream does not know it: OBJECT_SELECTOR leaves it out, or the producer is behind or does not run",
        )


def _not_told(uid: str, evidence: Evidence) -> Iterator[Pending]:
    """Say whether the object is not any more as its last event says."""
    live, events = evidence.live, evidence.events_of(uid)
    standing = evidence.standings[uid]
    if live is None or live.trouble or not events:
        return
    last = events[-1].event
    ended = last.event.type == "deleted"
    if live.seen is None or live.seen.uid != uid:
        if not ended:
            yield from (Pending(Cause.HELD, each) for each in evidence.holds)
            why = "it is gone from the cluster, and no event says so yet: the producer is behind or does not run"
            if not evidence.holds:
                yield Pending(Cause.NOT_PUBLISHED, why)
    elif live.seen.digest != last.event.digest:
        words = ", ".join(changed_words(last.obj, standing.seen.obj, evidence.settings.prefix)) or "something"
        yield Pending(
            Cause.NOT_PUBLISHED,
            f"a change of the object is not in the stream ({words}): the producer is behind or does not run",
        )


# --- between the stream and the registry ------------------------------------------------------------------------------


def _not_handled(uid: str, evidence: Evidence) -> Iterator[Pending]:
    events = evidence.events_of(uid)
    if not events:
        return
    seq = events[-1].event.position.seq
    if seq in evidence.at_hand:
        yield Pending(Cause.NOT_HANDLED, f"event {seq} was not settled when the capture ended")
    delivery = evidence.delivery
    if delivery is not None and (why := _waits(seq, delivery)):
        yield Pending(Cause.NOT_HANDLED, f"event {seq} {why}")


def _waits(seq: int, delivery: Delivery) -> str:
    nobody = f"no consumer asks for the messages of shard {delivery.shard}: does one run?"
    if not delivery.exists:
        return f"waits to be handled: no consumer has ever asked for the messages of shard {delivery.shard}"
    if seq > delivery.delivered:
        return "waits to be handled" + ("" if delivery.pulling else f", and {nobody}")
    if seq > delivery.acked and delivery.unacked:
        if not delivery.pulling:
            return f"was delivered and is not acknowledged, and {nobody}"
        return (
            "was delivered and is not acknowledged: it is being handled, or tried again (the consumer's log says why)"
        )
    return ""


def _without_home(standing: Standing, evidence: Evidence) -> Iterator[Pending]:
    if standing.home in evidence.unread:
        yield Pending(Cause.UNREAD, f"registry {standing.home} cannot be read ({evidence.unread[str(standing.home)]})")
    elif standing.no_home and not standing.forbidden:
        yield Pending(Cause.NO_REGISTRY, f"it has no registry: {standing.no_home}")


def _refusals(uid: str, standing: Standing, rejected: list[str], evidence: Evidence) -> Iterator[Pending]:
    """Say what can never succeed as it is; the dead letter is named where there is one."""
    reasons = [standing.no_home] if standing.forbidden else rejected
    if not reasons:
        return
    letter = evidence.letter
    buried = letter is not None and letter.uid in {"", uid}
    cause = Cause.NOT_ALLOWED if standing.forbidden else Cause.DEAD_LETTER if buried else Cause.REJECTED
    kept = f" (dead letter of event {letter.seq})" if letter is not None and buried else ""
    yield Pending(cause, "; ".join(reasons) + kept)


def _old_letter(uid: str, standing: Standing, rejected: list[str], evidence: Evidence) -> Iterator[Pending]:
    letter = evidence.letter
    if letter is None or letter.uid not in {"", uid} or rejected or standing.forbidden:
        return
    if not _is_readable(standing, evidence):
        yield Pending(Cause.DEAD_LETTER, f"event {letter.seq} is a dead letter: {letter.reason}")
    else:
        why = f"event {letter.seq} is a dead letter ({letter.reason}), though it could succeed now"
        yield Pending(Cause.DEAD_LETTER, f"{why}: the next sweep, or isvc-sync drift --fix, has it tried again")


def _differs(standing: Standing, evidence: Evidence, *, under_way: bool) -> Iterator[Pending]:
    difference = _difference(standing, evidence)
    if difference is None or difference.reason is Reason.DEFERRED:
        return
    repairs = "; ".join(each for each in difference.repairs if not each.startswith("write the id later"))
    if under_way:
        yield Pending(Cause.DIFFERS, f"then will be done: {repairs}")
    elif evidence.is_capture:
        held = "what is planned" if standing.home in evidence.planned else "the registry at the end of the capture"
        yield Pending(Cause.DIFFERS, f"{held} differs ({difference.reason}): {repairs}")
    elif difference.reason is Reason.MISSING:
        why = "no record was made of it, and nothing is under way: the next sweep, or isvc-sync drift --fix, does it"
        yield Pending(Cause.DIFFERS, f"{why} ({repairs})")
    else:
        mend = "the next sweep mends that, or isvc-sync drift --fix"
        yield Pending(Cause.DIFFERS, f"registry and object differ ({difference.reason}), {mend}: {repairs}")


def _difference(standing: Standing, evidence: Evidence) -> Difference | None:
    if standing.home in evidence.unread:
        return None
    comparison = _comparison(evidence)
    return comparison.judge(standing.seen, standing.home, standing.facts)


def _strangers(standing: Standing, decided: tuple[Action, ...], evidence: Evidence) -> Iterator[Pending]:
    """Say which records of an earlier controller are not taken over yet: the sweep leaves them to the next event."""
    unsigned = {each.id for each in home_records(standing, evidence).values() if each.stamp is None}
    for action in decided:
        if isinstance(action, UpdateRecord) and action.id in unsigned:
            why = f"record {action.id} was not written by isvc-sync, and is taken over at the object's next event"
            yield Pending(Cause.DIFFERS, f"{why}: {action.reason}")


def _deferred(decided: tuple[Action, ...], evidence: Evidence) -> Iterator[Pending]:
    for action in decided:
        if isinstance(action, DeferPatch) and action.record_id is not None:
            why = action.reason.partition(";")[0]
            yield Pending(
                Cause.DEFERRED,
                f"writing its id to the object waits: that would now cost {action.cost} ({COSTS[action.cost]}), and "
                f"WRITE_BACK={evidence.settings.write_back} does not allow that ({why})",
            )


def _names(names: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
