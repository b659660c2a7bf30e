"""The checks at the end of the demo: does the registry say what the cluster shows? Pure.

Each check looks at all that it is about, and fails when there was nothing to look at.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from cli.demo.state import ID_LABEL, MODEL_LABEL, Expected, Life, Record, Seen, deferral, expected
from shared.objects import ObjectKey

_PROBLEMS_SHOWN: Final = 3


class Evidence(msgspec.Struct, frozen=True):
    """Everything that is checked.

    `messages` are all messages of all streams, headers and body; `logs` all lines of producer and consumer. `secret`
    was planted in objects. `deferred` is the consumer's own count of ids that it has not written yet, None when it gave
    none.
    """

    seen: Seen
    dead_letters: Mapping[ObjectKey, str]
    messages: tuple[str, ...]
    logs: tuple[str, ...]
    secret: str
    deferred: int | None


class Finding(msgspec.Struct, frozen=True):
    """What one check found: how many it compared, of what, and what is wrong."""

    compared: int
    what: str
    problems: tuple[str, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """A check by name, with its result as a sentence."""

    name: str
    passed: bool
    detail: str


def verdicts(evidence: Evidence) -> list[Check]:
    """Return all checks of registry, cluster and broker."""
    return [check(name, examine(evidence)) for name, examine in CHECKS]


def check(name: str, finding: Finding) -> Check:
    if finding.problems:
        more = len(finding.problems) - _PROBLEMS_SHOWN
        rest = (f"and {more} more",) if more > 0 else ()
        return Check(name, False, "; ".join((*finding.problems[:_PROBLEMS_SHOWN], *rest)))
    if not finding.compared:
        return Check(name, False, f"there was nothing to compare: expected {finding.what}")
    return Check(name, True, f"{finding.compared} {finding.what}")


def exits(codes: Mapping[str, int]) -> list[Check]:
    """Return one check for each process that was asked to end."""
    return [
        Check(f"the {name} ended cleanly", code == 0, f"exit code {code}" + ("" if code == 0 else ", expected 0"))
        for name, code in codes.items()
    ]


def one_record(evidence: Evidence) -> Finding:
    seen, problems = evidence.seen, []
    for life in seen.indexed():
        model = life.label(MODEL_LABEL)
        ids = [record.id for record in seen.records_of(life) if record.registered_model_id == model]
        if len(ids) != 1:
            problems.append(f"{life.name}: expected one record of model {model}, seen {', '.join(ids) or 'none'}")
    return Finding(len(seen.indexed()), "objects", tuple(problems))


def field(of_record: Callable[[Record, Seen], str], wanted: Callable[[Expected], str]) -> Callable[[Evidence], Finding]:
    """Return the check that a field of every record is what is expected (a missing record is another check's)."""

    def examine(evidence: Evidence) -> Finding:
        seen = evidence.seen
        compared = [
            (life.name, wanted(expected(life, seen)), of_record(record, seen))
            for life in seen.indexed()
            for record in seen.records_of(life)
        ]
        problems = (
            f"{name}: expected {value or 'none'}, seen {shown or 'none'}"
            for name, value, shown in compared
            if shown != value
        )
        return Finding(len(compared), "records", tuple(problems))

    return examine


def environment_name(record: Record, seen: Seen) -> str:
    names = (each.name for each in seen.environments if each.id == record.serving_environment_id)
    return next(names, f"an environment {record.serving_environment_id} that does not exist")


def written_back(evidence: Evidence) -> Finding:
    """Check the id on each living object; a deferred one must be one of those whose pods serve, and be counted."""
    seen, problems, reasons = evidence.seen, [], []
    living = [life for life in seen.indexed() if life.lives]
    for life in living:
        label, ids = life.label(ID_LABEL), [record.id for record in seen.records_of(life)]
        if label in ids:
            continue
        reason = deferral(life) if label is None else None
        if reason is None:
            problems.append(f"{life.name}: expected id {' or '.join(ids) or 'none'}, seen {label or 'no label'}")
        else:
            reasons.append(f"{life.name} deferred ({reason})")
    if evidence.deferred != len(reasons):
        problems.append(f"{len(reasons)} objects lack their id, but the consumer counts {evidence.deferred} deferred")
    return Finding(len(living), ", ".join(["objects", *reasons]), tuple(problems))


def unindexed(evidence: Evidence) -> Finding:
    lives = [life for life in evidence.seen.lives if life.label(MODEL_LABEL) is None]
    return Finding(len(lives), "object without label", _with_records(evidence.seen, lives))


def dead_letters(evidence: Evidence) -> Finding:
    seen, letters = evidence.seen, evidence.dead_letters
    unknown = [life for life in seen.lives if (life.label(MODEL_LABEL) or "") not in {"", *seen.models}]
    problems = list(_with_records(seen, unknown))
    for life in unknown:
        model, reason = life.label(MODEL_LABEL), letters.get(life.key)
        if reason is None or str(model) not in reason:
            problems.append(f"{life.name}: expected a dead letter that names model {model}, seen {reason or 'none'}")
    known = {life.key for life in unknown}
    problems += [f"{key}: nobody expected this dead letter: {why}" for key, why in letters.items() if key not in known]
    reasons = " / ".join(letters[life.key] for life in unknown if life.key in letters)
    return Finding(len(unknown), f"dead letter: {reasons}", tuple(problems))


def _with_records(seen: Seen, lives: Iterable[Life]) -> tuple[str, ...]:
    pairs = [(life, record) for life in lives for record in seen.records_of(life)]
    return tuple(f"{life.name}: expected no record, seen record {record.id}" for life, record in pairs)


def re_created(evidence: Evidence) -> Finding:
    seen = evidence.seen
    names = [name for name, count in Counter(life.name for life in seen.indexed()).items() if count > 1]
    problems = []
    for name in names:
        lives = [life for life in seen.indexed() if life.name == name]
        states = [[record.desired_state for record in seen.records_of(life)] for life in lives]
        wanted = [*(["UNDEPLOYED"] for _ in lives[1:]), [expected(lives[-1], seen).state]]
        if states != wanted:
            problems.append(f"{name}: expected {wanted}, seen {states}")
    return Finding(len(names), "object with a record for each of its lives", tuple(problems))


def deleted_unwatched(evidence: Evidence) -> Finding:
    seen = evidence.seen
    lives = [life for life in seen.indexed() if life.unwatched and life.gone]
    states = {life.name: [record.desired_state for record in seen.records_of(life)] for life in lives}
    problems = [f"{name}: expected UNDEPLOYED, seen {each}" for name, each in states.items() if each != ["UNDEPLOYED"]]
    return Finding(len(lives), "object, UNDEPLOYED", tuple(problems))


def environments_once(evidence: Evidence) -> Finding:
    names = [each.name for each in evidence.seen.environments]
    return Finding(len(names), "environments", _doubled(names))


def records_once(evidence: Evidence) -> Finding:
    records = evidence.seen.records
    ours = {life.uid for life in evidence.seen.lives}
    strangers = tuple(
        f"record {each.id} ({each.name}) belongs to no object" for each in records if each.uid not in ours
    )
    problems = _doubled(each.name for each in records) + _doubled(each.external_id for each in records)
    return Finding(len(records), "records", problems + strangers)


def _doubled(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{name} is there {count} times" for name, count in Counter(names).items() if count > 1)


def no_secret(evidence: Evidence) -> Finding:
    """Search for the planted secret; that it was planted, and that its objects were published, is checked as well."""
    planted = [life for life in evidence.seen.lives if evidence.secret in msgspec.json.encode(life.obj).decode()]
    bodies = "\n".join(evidence.messages)
    unpublished = [life.name for life in planted if life.uid not in bodies]
    records = [msgspec.json.encode(record).decode() for record in evidence.seen.records]
    places = {"a message": evidence.messages, "a record": records, "a log line": evidence.logs}
    problems = [
        f"{where} holds it: {each.replace(evidence.secret, '***')[:200]}"
        for where, texts in places.items()
        for each in texts
        if evidence.secret in each
    ]
    problems += [f"{name} holds a secret, but no message is about it" for name in unpublished]
    what = f"objects hold one; searched {len(evidence.messages)} messages, {len(records)} records, the logs"
    return Finding(len(planted), what, tuple(problems))


CHECKS: Final[tuple[tuple[str, Callable[[Evidence], Finding]], ...]] = (
    ("each indexed object has one record", one_record),
    ("state", field(lambda record, _: record.desired_state, lambda wanted: wanted.state)),
    ("registered model", field(lambda record, _: record.registered_model_id, lambda wanted: wanted.model)),
    ("model version", field(lambda record, _: record.model_version_id, lambda wanted: wanted.version)),
    ("url", field(lambda record, _: record.url, lambda wanted: wanted.url)),
    ("runtime", field(lambda record, _: record.runtime, lambda wanted: wanted.runtime)),
    ("serving environment", field(environment_name, lambda wanted: wanted.environment)),
    ("the object carries its record's id", written_back),
    ("no label, no record", unindexed),
    ("an unknown model is a dead letter", dead_letters),
    ("a re-created object has a record for each life", re_created),
    ("deleted while no producer ran", deleted_unwatched),
    ("no environment twice", environments_once),
    ("no record twice, none of nobody", records_once),
    ("no secret leaves the cluster", no_secret),
)
