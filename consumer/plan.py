"""Decide what to do about one object. Pure: no I/O, no clock, no randomness.

Everything that decides goes through here: events, looks at live objects, replay, drift, simulation. Which event brought
us here is no argument, only the state counts, so that lost, doubled and reordered events lead to the same end. An empty
plan means that registry and object agree.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from consumer.actions import Action, CreateRecord, DeferPatch, PatchObject, Reject, UpdateRecord, Warn
from consumer.freshness import Order, compare
from consumer.notices import Topic
from consumer.observation import Observation, Wanted, want
from consumer.records import (
    PROPERTY,
    URL_PROPERTY,
    Identity,
    Record,
    Stamp,
    base_name,
    encode_stamp,
    external_id,
    later_name,
    string_property,
)
from consumer.stamps import agree, closing_stamp, stamp_for
from consumer.writeback import Target, WriteBack, cost_of
from shared.objects import is_registry_id

ELSEWHERE: Final = "the object belongs to another registry now"
FORGOTTEN: Final = "the object has another model label now, or none"
WITHOUT_VERSION: Final = "recorded without a version"

Records = Mapping[str, Record]  # the records of one uid that exist, by registered-model id


class PlanSettings(msgspec.Struct, frozen=True):
    """The settings that decide. `prefix` is that of our labels; `environment` a template of {namespace}, {cluster}."""

    us: Identity
    prefix: str
    environment: str
    write_back: WriteBack
    target: Target


class Questions(msgspec.Struct, frozen=True):
    """The ids that `plan` must know about before it decides: on a create the registry checks neither."""

    models: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()


class Facts(msgspec.Struct, frozen=True):
    """The answers. `models`: whether it exists. `versions`: the model it belongs to, None when it does not exist."""

    models: Mapping[str, bool] = {}
    versions: Mapping[str, str | None] = {}


def questions(seen: Observation, records: Records, settings: PlanSettings) -> Questions:
    """Return what to ask the registry. What a record says already was checked when it was written."""
    wanted = want(seen, settings.prefix)
    if wanted.model is None or not is_registry_id(wanted.model):
        return Questions()
    record = records.get(wanted.model)
    passed = (each.version for each in seen.passed if each.model == wanted.model)
    return Questions(
        models=frozenset() if record else frozenset({wanted.model}),
        versions=frozenset(
            label for label in (wanted.version, *passed) if is_registry_id(label) and not _knows_version(record, label)
        ),
    )


def plan(seen: Observation, records: Records, facts: Facts, settings: PlanSettings) -> tuple[Action, ...]:
    """Return the actions that bring registry and object into agreement, in order; the patch is the last effect."""
    if is_stale(seen, records, settings):
        return ()
    wanted = want(seen, settings.prefix)
    seen = _checked(seen, wanted, records, facts)
    actions: list[Action] = []
    if wanted.contradiction:
        actions.append(Warn(Topic.CONFLICTING_LABELS, wanted.contradiction))
    why = "the model label is gone" if wanted.model is None else f"the model label is now {wanted.model!r}"
    actions += _close_all_but(wanted.model, why, seen, records, settings)
    match wanted.model:
        case None:
            actions += _unindexed(seen, settings)
        case label if not is_registry_id(label):
            actions += _complain(seen, f"label {settings.prefix}registered-model-id={label!r} is no id of the registry")
        case model if (record := records.get(model)) is not None:
            actions += _agreement(seen, wanted, record, facts, settings)
        case model if facts.models[model]:
            version, complaints = _version(seen, wanted, None, facts)
            actions.append(_create(seen, wanted, version, records, settings))
            actions += (*write_back(seen, None, settings), *complaints)
        case model:
            actions += _complain(seen, f"registered model {model} does not exist in the registry")
    return tuple(actions)


def leave(
    seen: Observation, records: Records, settings: PlanSettings, why: str = ELSEWHERE
) -> tuple[UpdateRecord, ...]:
    """Return the actions that close records which are no longer the object's: by default, in a former registry."""
    if is_stale(seen, records, settings):
        return ()
    why = why if seen.lives else "the object is gone"
    return tuple(_close_all_but(None, why, replace(seen, passed=()), records, settings))


def is_stale(seen: Observation, records: Records, settings: PlanSettings) -> bool:
    """Whether a record was written from a newer state. Every record of a uid speaks for it, closed ones too.

    But not another cluster's: its epochs and resourceVersions count another history.
    """
    stamps = [record.stamp for record in records.values() if not _is_foreign(record, settings)]
    return any(stamp and compare(seen.freshness, stamp.freshness) is Order.OLDER for stamp in stamps)


def write_back(
    seen: Observation, record_id: str | None, settings: PlanSettings
) -> tuple[PatchObject | DeferPatch, ...]:
    """Return the patch that brings the record's id to the object, or its deferral; nothing where it stands already.

    `record_id` None: the record is only about to be made, so whatever the object says is not its id.
    """
    if not seen.lives or settings.write_back is WriteBack.OFF:
        return ()
    value = settings.target.value_on(seen.obj)
    if value is not None and value == record_id:
        return ()
    why = "the object does not carry the record's id" if value is None else f"the object carries {value!r}, not its id"
    cost = cost_of(seen.obj, settings.target)
    if settings.write_back.allows(cost):
        return (PatchObject(record_id, cost, seen.obj.metadata.resource_version, why),)
    return (DeferPatch(record_id, cost, f"{why}; a write now would cost: {cost}"),)


def environment_name(seen: Observation, settings: PlanSettings) -> str:
    """Return the name of the serving environment that holds the object's records."""
    return settings.environment.replace("{namespace}", seen.key.namespace).replace("{cluster}", settings.us.cluster)


def _close_all_but(
    current: str | None, why: str, seen: Observation, records: Records, settings: PlanSettings
) -> list[UpdateRecord]:
    """Close every record of this uid but that of the model it is labelled with now.

    A closed one is touched once more, when an object without label goes: so that no late event opens it again.
    """
    actions = []
    for model, record in records.items():
        if model == current or _is_foreign(record, settings):
            continue
        stamp = record.stamp
        final = current is not None or (stamp is not None and stamp.deleted) or seen.lives
        if record.deployed is False and stamp is not None and final:
            continue
        properties = record.properties | {PROPERTY: encode_stamp(closing_stamp(seen, record, settings.us))}
        ours = external_id(seen.uid, model)
        adopted = "" if record.external_id == ours else ours
        actions.append(UpdateRecord(record.id, False, properties, why, external_id=adopted))
    return actions


def _unindexed(seen: Observation, settings: PlanSettings) -> list[Warn]:
    if seen.models or settings.target.value_on(seen.obj) is None:
        return []
    why = "the object carries a record's id but no registered-model label: it is not indexed"
    return [Warn(Topic.NOT_INDEXED, why)]


def _create(seen: Observation, wanted: Wanted, version: str, records: Records, settings: PlanSettings) -> CreateRecord:
    assert wanted.model is not None, "only an indexed object gets a record"
    base = base_name(seen.key, seen.uid)
    is_first = wanted.model == (seen.models or (wanted.model,))[0]
    is_free = all(record.name != base for record in records.values())
    return CreateRecord(
        environment=environment_name(seen, settings),
        name=base if is_first and is_free else later_name(seen.key, seen.uid, wanted.model),
        external_id=external_id(seen.uid, wanted.model),
        model_id=wanted.model,
        version_id=version,
        runtime=wanted.runtime,
        deployed=wanted.deployed,
        properties=_properties({}, wanted, stamp_for(seen, wanted, version, None, settings.us)),
        reason=f"no record says that this object deploys registered model {wanted.model}",
    )


def _agreement(seen: Observation, wanted: Wanted, record: Record, facts: Facts, settings: PlanSettings) -> list[Action]:
    """Return what makes an existing record true, and the object carry its id."""
    if _is_foreign(record, settings):
        return [
            Reject(
                f"record {record.id} was written for cluster id {_cluster_id(record)}, this is {settings.us.cluster_id}"
            )
        ]
    version, complaints = _version(seen, wanted, record, facts)
    stamp = stamp_for(seen, wanted, version, record, settings.us)
    differences = _differences(seen, wanted, record, stamp)
    actions: list[Action] = []
    if differences:
        actions.append(
            UpdateRecord(
                id=record.id,
                deployed=wanted.deployed,
                properties=_properties(record.properties, wanted, stamp),
                reason="the record says otherwise in " + ", ".join(differences),
                external_id=external_id(seen.uid, record.model_id) if "externalId" in differences else "",
                version_id=version if "modelVersionId" in differences else "",
                runtime=wanted.runtime if "runtime" in differences else "",
            )
        )
    return [*actions, *write_back(seen, record.id, settings), *complaints]


def _differences(seen: Observation, wanted: Wanted, record: Record, stamp: Stamp) -> list[str]:
    """Return the names of what the record says otherwise. The registry can clear neither a runtime nor a version."""
    url = string_property(wanted.url) if wanted.url else None
    return [
        name
        for name, differs in (
            ("externalId", record.external_id != external_id(seen.uid, record.model_id)),
            ("desiredState", record.deployed is not wanted.deployed),
            ("modelVersionId", stamp.model_version not in {"", record.version_id}),
            ("runtime", wanted.runtime not in {"", record.runtime}),
            (URL_PROPERTY, record.properties.get(URL_PROPERTY) != url),
            (PROPERTY, record.stamp is None or not agree(record.stamp, stamp)),
        )
        if differs
    ]


def _properties(present: Mapping[str, Any], wanted: Wanted, stamp: Stamp) -> dict[str, Any]:
    """Return the whole map to send: the users' own properties as they are, and our two."""
    users = {name: value for name, value in present.items() if name not in {URL_PROPERTY, PROPERTY}}
    url = {URL_PROPERTY: string_property(wanted.url)} if wanted.url else {}
    return users | url | {PROPERTY: encode_stamp(stamp)}


def _version(
    seen: Observation, wanted: Wanted, record: Record | None, facts: Facts
) -> tuple[str, tuple[Warn | Reject, ...]]:
    """Return the version id to record ("" for none), and what to say of a label that cannot be followed."""
    label = wanted.version
    if label == "" or _knows_version(record, label):
        return label, ()
    if not is_registry_id(label):
        return "", _complain(seen, f"label model-version-id={label!r} is no id of the registry; {WITHOUT_VERSION}")
    match facts.versions[label]:
        case None:
            return "", _complain(seen, f"model version {label} does not exist in the registry; {WITHOUT_VERSION}")
        case model if model != wanted.model:
            why = f"model version {label} is one of registered model {model}; {WITHOUT_VERSION}"
            return "", (Warn(Topic.OTHER_MODELS_VERSION, why),)
        case _:
            return label, ()


def _checked(seen: Observation, wanted: Wanted, records: Records, facts: Facts) -> Observation:
    """Leave of the passed-over versions those of the present model, each as it would have been recorded."""
    if wanted.model is None or not is_registry_id(wanted.model):
        return replace(seen, passed=())

    def recorded(label: str) -> str:
        if _knows_version(records.get(wanted.model or ""), label):
            return label
        return label if is_registry_id(label) and facts.versions[label] == wanted.model else ""

    passed = (replace(each, version=recorded(each.version)) for each in seen.passed if each.model == wanted.model)
    return replace(seen, passed=tuple(passed))


def _knows_version(record: Record | None, version: str) -> bool:
    """Whether the record was written with that version before, and so it was checked."""
    stamp = record.stamp if record else None
    if stamp is None:
        return False
    return version == stamp.model_version or any(version == change.version for change in stamp.history)


def _is_foreign(record: Record, settings: PlanSettings) -> bool:
    """Another cluster's record is never touched, even when a copied etcd gives both clusters the same uids."""
    return record.stamp is not None and _cluster_id(record) != settings.us.cluster_id


def _cluster_id(record: Record) -> str:
    return record.stamp.cluster_id if record.stamp else ""


def _complain(seen: Observation, why: str) -> tuple[Reject, ...]:
    """Return the complaint about a label, for as long as there is an object on which somebody may correct it."""
    return (Reject(why),) if seen.lives else ()
