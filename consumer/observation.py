"""What one event, or one GET, shows of an object, and what its record should say because of it. Pure."""

from functools import cache
from typing import Any

import msgspec

from consumer.freshness import Freshness
from consumer.notices import About
from consumer.writeback import deployment_mode
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.reduce import LOAD_FAILURES, digest_of, known_prefixes, reduce_object


class PassedVersion(msgspec.Struct, frozen=True):
    """The labels of an event that a newer one of the same uid replaced before its turn came; for the history."""

    model: str
    version: str
    resource_version: str
    time: str
    epoch: int


class Observation(msgspec.Struct, frozen=True, dict=True):
    """One state of one object.

    `models`: every registered-model id that this uid has carried, oldest first. `time`: when it was seen (RFC 3339).
    `passed`: versions between the last handled state and this one.
    """

    key: ObjectKey
    uid: str
    freshness: Freshness
    digest: str
    models: tuple[str, ...]
    time: str
    obj: ReducedObject
    passed: tuple[PassedVersion, ...] = ()

    @property
    def lives(self) -> bool:
        return not self.freshness.deleted

    @property
    def about(self) -> About:
        """What a notice to its owner is about."""
        return About(self.key, self.uid, self.obj.metadata.resource_version)


class LastEvent(msgspec.Struct, frozen=True):
    """The last event of an object in the stream: what it showed, and its place there."""

    seen: Observation
    sequence: int


def observe(event: Event, obj: ReducedObject, passed: tuple[PassedVersion, ...] = ()) -> Observation:
    """Return what an event shows."""
    return Observation(
        key=event.key,
        uid=event.uid,
        freshness=freshness_of(event, obj),
        digest=event.digest,
        models=event.models,
        time=event.time,
        obj=obj,
        passed=passed,
    )


def freshness_of(event: Event, obj: ReducedObject) -> Freshness:
    deleted = event.type is EventType.DELETED or obj.metadata.deletion_timestamp != ""
    return Freshness(event.epoch, event.resource_version, deleted)


def observe_live(last: Observation, raw: Any, prefix: str) -> Observation:
    """Return what a GET shows of the object that `last` knew; its epoch and models come from there.

    `prefix` is the configured one of our labels. Raises BadEventError when the answer is no object.
    """
    prefixes = known_prefixes(prefix)
    reduced = reduce_object(raw, prefixes)
    obj = msgspec.convert(reduced, ReducedObject)
    metadata = obj.metadata
    freshness = Freshness(last.freshness.epoch, metadata.resource_version, metadata.deletion_timestamp != "")
    return msgspec.structs.replace(last, freshness=freshness, digest=digest_of(reduced, prefixes), obj=obj, passed=())


class Wanted(msgspec.Struct, frozen=True):
    """What the registry should say of an object; equal values need no call.

    `model` is the registered-model label as it stands, None where the object has none (it is not indexed), `version`
    the version label. `contradiction` names a label that both known prefixes carry with different values.
    """

    model: str | None
    version: str
    lives: bool
    stopped: bool
    url: str
    runtime: str
    ready: bool
    load_failure: str
    deployment_mode: str
    model_format: str
    storage_uri: str
    contradiction: str = ""

    @property
    def deployed(self) -> bool:
        return self.lives and not self.stopped and self.model is not None


def want(seen: Observation, prefix: str) -> Wanted:
    """Return what the registry should say; `prefix` is the configured one of our labels."""
    wanted: Wanted | None = seen.__dict__.get(prefix)  # every step of a reconciliation asks
    if wanted is None:
        wanted = seen.__dict__[prefix] = _want(seen, prefix)
    return wanted


def _want(seen: Observation, prefix: str) -> Wanted:
    obj = seen.obj
    model, model_conflict = _label(obj, prefix, "registered-model-id")
    version, version_conflict = _label(obj, prefix, "model-version-id")
    transition = obj.status.model_status.transition_status
    predictor = obj.spec.predictor
    spec_model = predictor.model if predictor is not None else obj.spec.model
    return Wanted(
        model=model,
        version=version or "",
        lives=seen.lives,
        stopped=obj.is_stopped,
        url=_url(seen.key.kind, obj),
        runtime=spec_model.runtime or obj.status.cluster_serving_runtime_name or obj.status.serving_runtime_name,
        ready=seen.lives and obj.status.condition("Ready").status == "True",
        load_failure=transition if transition in LOAD_FAILURES else "",
        deployment_mode=deployment_mode(obj),
        model_format=spec_model.model_format.name,
        storage_uri=spec_model.storage_uri or spec_model.uri,
        contradiction=model_conflict or version_conflict,
    )


@cache
def _keys(prefix: str, name: str) -> tuple[str, ...]:
    return tuple(each + name for each in known_prefixes(prefix))


def _label(obj: ReducedObject, prefix: str, name: str) -> tuple[str | None, str]:
    """Return a label of ours and a complaint: the configured prefix wins, the other known one is read as well."""
    labels = obj.metadata.labels
    values = [labels[key] for key in _keys(prefix, name) if key in labels]
    if not values:
        return None, ""
    if len(values) > 1 and prefix + name in labels and any(value != values[0] for value in values):
        return values[0], f"label {name} has different values under two prefixes; {prefix}{name} wins"
    return values[0], ""


def _url(kind: Kind, obj: ReducedObject) -> str:
    """Return where the deployment is reached. An LLMInferenceService without a router has addresses only."""
    if kind is Kind.LLMISVC and obj.status.addresses:
        return obj.status.addresses[0].url
    return obj.status.url or obj.status.address.url
