"""The life of one object on one screen: what happened, what was decided, what stands, what is pending, and why. Pure.

    captured.py, live.py  ->  Evidence  ->  life()  ->  Life  ->  cli/replaying/explained.py

A name can have had several objects, one after the other; each uid is a section of its own, the newest first. The
verdict is about the newest.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from consumer.observation import Wanted, want
from consumer.records import Record
from replay.capture import Action
from replay.life.facts import Evidence, Past, Standing
from replay.life.pending import Cause, Pending, home_records, pending
from replay.life.words import changed_words, first_words
from replay.steps import Taken
from shared.events import EventType
from shared.objects import ObjectKey

PLANNED: Final = "planned: the capture does not tell what the registry held"


class Moment(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One event: what it shows, what `plan` decides about it, what a consumer is known to have done.

    `changes`: a few words each. `synthetic`: the producer found it by comparison, nobody saw it happen. `look`: no
    event, but what the consumer found when it looked again for an id that was due. `result`, `reason`: as in `Step`.
    `done`: of a capture that tells, the consumer's own actions.
    """

    seq: int
    time: str
    type: EventType
    resource_version: str
    initial: bool = False
    synthetic: bool = False
    look: bool = False
    changes: tuple[str, ...] = ()
    result: str = ""
    reason: str = ""
    decided: tuple[Taken, ...] = ()
    done: tuple[Action, ...] = ()


class Held(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One record of the object. `deployed` None: the registry holds no state. `written_from`: a resourceVersion.

    `planned`: nobody read it, the plan makes it.
    """

    registry: str
    id: str
    model: str
    version: str
    deployed: bool | None
    ready: bool
    url: str
    written_from: str
    deployed_at: str
    undeployed_at: str
    planned: bool = False


class Section(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One uid. `state`: `lives`, `is stopped`, `is gone`, or `is not known` where only a record tells of it."""

    uid: str
    state: str
    model: str
    version: str
    moments: tuple[Moment, ...]
    records: tuple[Held, ...]
    pending: tuple[Pending, ...]


class Life(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Everything about an object. `cause`: why it is not in the registry, or not up to date; "" where all is well.

    `agrees`: nothing is pending or wrong. `unread`: what could not be read, so that more may be wrong. `planned`: the
    records are those that the plan makes, since the capture does not tell what the registry held.
    """

    key: ObjectKey
    verdict: str
    cause: str
    agrees: bool
    sections: tuple[Section, ...]
    unread: tuple[str, ...] = ()
    planned: bool = False


def life(evidence: Evidence) -> Life:
    """Return the life that the evidence tells of."""
    uids = _uids(evidence)
    sections = tuple(_section(uid, evidence) for uid in uids)
    name = f"{evidence.key.namespace}/{evidence.key.name}"
    unread = tuple(f"registry {registry}: {why}" for registry, why in sorted(evidence.unread.items()))
    if not sections:
        nobody = _nobody_knows(evidence)
        verdict = f"{name} is not in the registry, because {nobody.what}"
        return Life(key=evidence.key, verdict=verdict, cause=nobody.cause, agrees=False, sections=(), unread=unread)
    newest = sections[0]
    verdict, cause = _verdict(name, newest, evidence)
    earlier = [each for each in sections[1:] if each.pending]
    if earlier:
        verdict += f"; something is pending for {_many(len(earlier), 'earlier object')} of that name"
        cause = cause or earlier[0].pending[0].cause
    planned = _is_planned(evidence)
    return Life(
        key=evidence.key,
        verdict=verdict + (f" ({PLANNED})" if planned else ""),
        cause=cause,
        agrees=not any(each.pending for each in sections),
        sections=sections,
        unread=unread,
        planned=planned,
    )


def _is_planned(evidence: Evidence) -> bool:
    """Whether anything is concluded here from records that nobody has read."""
    homes = {standing.home for standing in evidence.standings.values()}
    those = {registry for registry, records in evidence.records.items() if records}
    return not evidence.planned.isdisjoint(homes | those)


def _uids(evidence: Evidence) -> list[str]:
    """Return all uids of the name, the newest first: the living one, then by their last events, then by records."""
    found: dict[str, None] = {}
    if evidence.live is not None and evidence.live.seen is not None:
        found[evidence.live.seen.uid] = None
    for past in reversed(evidence.past):
        found.setdefault(past.event.event.uid)
    stamps = [record.stamp for records in evidence.records.values() for record in records]
    for stamp in sorted((each for each in stamps if each), key=lambda each: each.deployed_at, reverse=True):
        found.setdefault(stamp.uid)
    return list(found)


def _nobody_knows(evidence: Evidence) -> Pending:
    kind = evidence.key.kind
    if evidence.live is None:
        return Pending(Cause.UNKNOWN, f"the capture has no event of an {kind} of that name")
    if evidence.live.trouble:
        return Pending(Cause.NO_KIND, evidence.live.trouble)
    if evidence.unread:
        return Pending(Cause.UNREAD, "neither cluster nor stream knows it, and not every registry could be read")
    return Pending(Cause.UNKNOWN, f"nobody knows it: neither cluster, stream nor registry has an {kind} of that name")


def _section(uid: str, evidence: Evidence) -> Section:
    standing = evidence.standings.get(uid)
    wanted = want(standing.seen, evidence.settings.prefix) if standing is not None else None
    return Section(
        uid=uid,
        state=_state(wanted),
        model=(wanted.model or "") if wanted is not None else "",
        version=wanted.version if wanted is not None else "",
        moments=tuple(_moments(uid, evidence)),
        records=tuple(_held(uid, evidence)),
        pending=pending(uid, evidence),
    )


def _state(wanted: Wanted | None) -> str:
    if wanted is None:
        return "is not known"
    if not wanted.lives:
        return "is gone"
    return "is stopped" if wanted.stopped else "lives"


def _moments(uid: str, evidence: Evidence) -> Iterator[Moment]:
    before: Past | None = None
    done = evidence.done_by_event()
    for past in evidence.events_of(uid):
        captured, step = past.event, past.step
        yield Moment(
            seq=captured.position.seq,
            time=captured.event.time,
            type=captured.event.type,
            resource_version=captured.event.resource_version,
            initial=captured.initial,
            synthetic=captured.event.synthetic,
            changes=_changes(before, past, evidence.settings.prefix),
            result=step.result if step is not None else "",
            reason=step.reason if step is not None else "",
            decided=step.taken if step is not None else (),
            done=tuple(done.get(captured.position.seq, ())),
        )
        for look in past.looks:
            yield Moment(
                seq=look.seq,
                time=look.time,
                type=look.type,
                look=True,
                resource_version=look.resource_version,
                result=look.result,
                decided=look.taken,
            )
        before = past


def _changes(before: Past | None, past: Past, prefix: str) -> tuple[str, ...]:
    if before is None:
        return first_words(past.event.obj, prefix)
    changes = changed_words(before.event.obj, past.event.obj, prefix)
    if changes or past.event.event.type is EventType.DELETED:
        return changes
    return ("nothing that is told here",)


def _held(uid: str, evidence: Evidence) -> Iterator[Held]:
    for registry in sorted(evidence.records):
        for record in evidence.records[registry]:
            if uid_of(record) == uid:
                stamp = record.stamp
                yield Held(
                    registry=registry,
                    id=record.id,
                    model=record.model_id,
                    version=stamp.model_version if stamp else record.version_id,
                    deployed=record.deployed,
                    ready=stamp.ready if stamp else False,
                    url=record.url,
                    written_from=stamp.resource_version if stamp else "",
                    deployed_at=stamp.deployed_at if stamp else "",
                    undeployed_at=stamp.undeployed_at if stamp else "",
                    planned=registry in evidence.planned,
                )


def uid_of(record: Record) -> str:
    """Return the uid that a record is about, "" where it does not say: by our property, externalId, or name."""
    if record.stamp is not None:
        return record.stamp.uid
    if record.external_id.startswith("kserve:"):
        return record.external_id.removeprefix("kserve:").partition("/")[0]
    return record.name.partition("/")[2]


def _verdict(name: str, section: Section, evidence: Evidence) -> tuple[str, str]:
    """Return the one sentence, and the cause when something is pending or missing."""
    first = section.pending[0] if section.pending else None
    standing = evidence.standings.get(section.uid)
    if first is not None and first.cause is Cause.UNREAD:
        return f"whether {name} is in the registry is not known, because {first.what}", first.cause
    if standing is None:
        verdict = f"{name} is known from the registry alone, where its records are UNDEPLOYED"
        return (f"{name} is known from the registry alone: {first.what}", first.cause) if first else (verdict, "")
    records, planned = home_records(standing, evidence), standing.home in evidence.planned
    left = (each for each in records.values() if each.deployed is not False)
    record = records.get(section.model) or next(left, None)
    if record is not None:
        up_to_date = first is None or first.cause is Cause.DEFERRED  # the record itself is right
        tail = (", and up to date" if up_to_date else "") + (f", but {first.what}" if first is not None else "")
        return f"{name} {_as_record(record, section, planned=planned)}{tail}", first.cause if first is not None else ""
    return _not_there(name, section, standing, evidence)


def _as_record(record: Record, section: Section, *, planned: bool) -> str:
    state = {True: "DEPLOYED", False: "UNDEPLOYED", None: "without a state"}[record.deployed]
    version = record.stamp.model_version if record.stamp else record.version_id
    versioned = f"version {version}" if version else "without a version"
    if section.state == "is gone":
        return f"is gone; its record {record.id} {_is(planned)} {state}, {versioned}"
    why = ": it is stopped" if section.state == "is stopped" and record.deployed is False else ""
    return f"{_is(planned)} in the registry as record {record.id} ({state}{why}), {versioned}"


def _is(planned: bool) -> str:
    """Return how what a registry holds is said: nobody has read a planned one."""
    return "would be" if planned else "is"


def _not_there(name: str, section: Section, standing: Standing, evidence: Evidence) -> tuple[str, str]:
    """Say why the newest object of the name has no record of its own model."""
    first = section.pending[0] if section.pending else None
    planned = standing.home in evidence.planned
    unlabelled = f"no label {evidence.settings.prefix}registered-model-id"
    if first is not None:
        gone = "is gone, and " if section.state == "is gone" else ""
        there = "would not be" if planned else "is not"
        return f"{name} {gone}{there} in the registry, because {first.what}", first.cause
    if not standing.seen.models and section.state == "is gone":
        return f"{name} is gone, and was never in the registry, because it had {unlabelled}", Cause.NOT_INDEXED
    closed = [each.id for each in section.records]
    plural = "records" if len(closed) > 1 else "record"
    former = f"; what it deployed before {_is(planned)} closed ({plural} {', '.join(closed)})" if closed else ""
    if section.state == "is gone":
        return f"{name} is gone, and had {unlabelled} at its end{former}", Cause.NOT_INDEXED
    return f"{name} is not in the registry, because it has {unlabelled}{former}", Cause.NOT_INDEXED


def _many(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
