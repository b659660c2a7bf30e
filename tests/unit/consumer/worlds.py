"""Small worlds for the tests of the core: objects, records, and a pure model of what performing a plan does to them."""

from typing import Any

from msgspec.structs import replace

from consumer.actions import Action, CreateRecord, PatchObject, UpdateRecord
from consumer.freshness import Freshness
from consumer.observation import Observation, want
from consumer.plan import Facts, PlanSettings
from consumer.records import PROPERTY, Identity, Record, encode_stamp, external_id, string_property
from consumer.stamps import stamp_for
from consumer.writeback import Target, WriteBack, WriteBackForm
from shared.objects import (
    Component,
    Condition,
    Kind,
    Metadata,
    Model,
    ModelFormat,
    ObjectKey,
    ReducedObject,
    Spec,
    Status,
)

PREFIX = "modelregistry.kubeflow.org/"
MODEL, VERSION, ID = (PREFIX + name for name in ("registered-model-id", "model-version-id", "inference-service-id"))
UID = "5a1e"
KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
BORN, SEEN = "2026-11-30T10:00:00Z", "2026-11-30T10:00:05Z"
PREDECESSORS = Record("7", f"iris/{UID}", "", "3", "1", "11", "sk", True, {"url": string_property("http://old")})

SETTINGS = PlanSettings(
    us=Identity("prod-a", "c-1"),
    prefix=PREFIX,
    environment="{namespace}",
    write_back=WriteBack.SAFE,
    target=Target(ID, WriteBackForm.LABEL),
)
FACTS = Facts(models={"1": True, "2": True, "404": False}, versions={"11": "1", "12": "1", "21": "2", "404": None})


def an_object(
    labels: dict[str, str] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    status: Status | None = None,
    spec: Spec | None = None,
    version: str = "10",
    going: bool = False,
) -> ReducedObject:
    """Return an InferenceService in Standard mode that has not been ready yet: writing to it costs a pod start."""
    return ReducedObject(
        kind="InferenceService",
        metadata=Metadata(
            name=KEY.name,
            namespace=KEY.namespace,
            uid=UID,
            resource_version=version,
            generation=1,
            creation_timestamp=BORN,
            deletion_timestamp="2026-11-30T11:00:00Z" if going else "",
            labels={MODEL: "1", VERSION: "11"} if labels is None else labels,
            annotations=annotations or {},
        ),
        spec=spec
        or Spec(predictor=Component(model=Model(ModelFormat("sklearn"), storage_uri="s3://models/iris", runtime="sk"))),
        status=status or Status(deployment_mode="Standard"),
    )


READY = Status(
    deployment_mode="Standard",
    url="http://iris.example",
    conditions=(Condition("Ready", "True"), Condition("PredictorReady", "True", "NewReplicaSetAvailable")),
)


def seen(
    obj: ReducedObject | None = None, *, models: tuple[str, ...] = ("1",), gone: bool = False, epoch: int = 1
) -> Observation:
    obj = obj or an_object()
    deleted = gone or obj.metadata.deletion_timestamp != ""
    freshness = Freshness(epoch, obj.metadata.resource_version, deleted)
    return Observation(KEY, UID, freshness, "v1:d", models, SEEN, obj)


def record_of(observation: Observation, *, number: str = "7", version: str | None = None, **changes: Any) -> Record:
    """Return the record that agrees with an observation."""
    wanted = want(observation, PREFIX)
    version = wanted.version if version is None else version
    model = wanted.model or "1"
    stamp = stamp_for(observation, wanted, version, None, SETTINGS.us)
    url = {"url": string_property(wanted.url)} if wanted.url else {}
    agreeing = Record(
        id=number,
        name=f"{KEY.name}/{UID}",
        external_id=external_id(UID, model),
        environment_id="3",
        model_id=model,
        version_id=version,
        runtime=wanted.runtime,
        deployed=wanted.deployed,
        properties=url | {PROPERTY: encode_stamp(stamp)},
    )
    return replace(agreeing, **changes)


def carrying(obj: ReducedObject, record_id: str) -> ReducedObject:
    """Return the object with a record's id on it."""
    return replace(obj, metadata=replace(obj.metadata, labels=obj.metadata.labels | {ID: record_id}))


def performed(
    action: Action, obj: ReducedObject, records: dict[str, Record], next_id: int
) -> tuple[ReducedObject, dict[str, Record]]:
    """Return the world after one action, as registry and API server would leave it."""
    match action:
        case CreateRecord():
            made = Record(
                id=str(next_id),
                name=action.name,
                external_id=action.external_id,
                environment_id="3",
                model_id=action.model_id,
                version_id=action.version_id,
                runtime=action.runtime,
                deployed=action.deployed,
                properties=action.properties,
            )
            return obj, records | {made.model_id: made}
        case UpdateRecord():
            model, before = next((m, r) for m, r in records.items() if r.id == action.id)
            after = replace(
                before,
                deployed=action.deployed,
                properties=action.properties,
                external_id=action.external_id or before.external_id,
                version_id=action.version_id or before.version_id,
                runtime=action.runtime or before.runtime,
            )
            return obj, records | {model: after}
        case PatchObject(record_id=record_id):
            newest = max(records.values(), key=lambda record: int(record.id))
            return carrying(obj, record_id or newest.id), records
        case _:
            return obj, records
