"""A small story as a capture: one object's life, and another one's create, as a producer would have published them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from consumer.records import PROPERTY, URL_PROPERTY, Stamp, VersionChange, encode_stamp, string_property
from replay.capture import FORMAT, Captured, Facts, Header, Line, Position, RecordFact
from replay.files import writing
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey
from shared.reduce import digest_of, reduce_object

CLUSTER_ID = "6d1c4f3e-1111-2222-3333-444455556666"
BEGAN = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
KEY = ObjectKey(Kind.ISVC, "team-a", "iris")
HEADER = Header(
    capture=FORMAT,
    created="2026-11-30T11:00:00Z",
    tool="test",
    cluster="prod-a",
    cluster_id=CLUSTER_ID,
    source="stream",
)


def isvc(key: ObjectKey, uid: str, version: int, **labels: str) -> dict[str, Any]:
    prefix = "modelregistry.kubeflow.org/"
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": key.kind.kubernetes_kind,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": uid,
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": {f"{prefix}{name.replace('_', '-')}": value for name, value in labels.items()},
            "annotations": {"example.com/note": "theirs"},
        },
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/iris"}}},
    }


def captured(
    seq: int,
    obj: dict[str, Any],
    what: EventType = EventType.UPDATED,
    *,
    at_s: float = 0.0,
    models: tuple[str, ...] = ("1",),
    initial: bool = False,
) -> Captured:
    """Return the event that shows an object, `at_s` seconds after the story began."""
    reduced, metadata = reduce_object(obj), obj["metadata"]
    time = (BEGAN + timedelta(seconds=at_s)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = Event(
        type=what,
        key=ObjectKey(Kind.ISVC, metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        epoch=1_700_000_000,
        resource_version=metadata["resourceVersion"],
        digest=digest_of(reduced),
        models=models,
        cluster_id=CLUSTER_ID,
        time=time,
    )
    return Captured(event, msgspec.json.encode(reduced), Position(seq, time=time), initial)


def ready(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as KServe left it when its model was served."""
    conditions = [{"type": "Ready", "status": "True"}]
    states = {"activeModelState": "Loaded", "targetModelState": "Loaded"}
    return obj | {
        "status": {
            "url": "http://iris.team-a.example.com",
            "conditions": conditions,
            "deploymentMode": "Standard",
            "clusterServingRuntimeName": "kserve-sklearnserver",
            "modelStatus": {"transitionStatus": "UpToDate", "states": states, "copies": {"totalCopies": 1}},
        }
    }


def story() -> list[Captured]:
    """Return created, ready, a new version, gone: resourceVersions so dense that a consumer's own patches need some."""
    first = isvc(KEY, "u-1", 50, registered_model_id="1", model_version_id="2")
    second = isvc(KEY, "u-1", 52, registered_model_id="1", model_version_id="3")
    other = isvc(ObjectKey(Kind.ISVC, "team-a", "other"), "u-2", 53, registered_model_id="1")
    return [
        captured(11, first, EventType.CREATED),
        captured(12, ready(first | {"metadata": first["metadata"] | {"resourceVersion": "51"}}), at_s=1.0),
        captured(13, ready(second), at_s=2.0),
        captured(14, other, EventType.CREATED, at_s=2.0),
        captured(
            15,
            ready(second | {"metadata": second["metadata"] | {"resourceVersion": "54"}}),
            EventType.DELETED,
            at_s=3.0,
        ),
    ]


START = Facts(models=("1",), versions={"2": "1", "3": "1"})


def end(**changes: Any) -> Facts:
    """Return what the registry held after the story; `changes` are of the first record's stamp."""
    stamp = Stamp(
        cluster="prod-a",
        cluster_id=CLUSTER_ID,
        kind="isvc",
        namespace="team-a",
        name="iris",
        uid="u-1",
        epoch=1_700_000_000,
        resource_version="54",
        deleted=True,
        deployment_mode="Standard",
        model_format="sklearn",
        storage_uri="s3://models/iris",
        model_version="3",
        deployed_at="2026-11-30T10:00:00.000Z",
        undeployed_at="2026-11-30T10:00:03.000Z",
        history=(
            VersionChange("2", "50", "2026-11-30T10:00:00.000Z"),
            VersionChange("3", "52", "2026-11-30T10:00:02.000Z"),
        ),
    )
    other = Stamp(
        cluster="prod-a",
        cluster_id=CLUSTER_ID,
        kind="isvc",
        namespace="team-a",
        name="other",
        uid="u-2",
        epoch=1_700_000_000,
        resource_version="53",
        model_format="sklearn",
        storage_uri="s3://models/iris",
        deployed_at="2026-11-30T10:00:02.000Z",
    )
    first = RecordFact(
        id="71",
        name="iris/u-1",
        external_id="kserve:u-1/1",
        environment="team-a",
        model_id="1",
        version_id="3",
        runtime="kserve-sklearnserver",
        deployed=False,
        properties={
            PROPERTY: encode_stamp(msgspec.structs.replace(stamp, **changes)),
            URL_PROPERTY: string_property("http://iris.team-a.example.com"),
        },
    )
    second = RecordFact(
        id="72",
        name="other/u-2",
        external_id="kserve:u-2/1",
        environment="team-a",
        model_id="1",
        deployed=True,
        properties={PROPERTY: encode_stamp(other)},
    )
    return Facts(at="end", records=(first, second))


def write(path: Path, lines: list[Line], header: Header = HEADER) -> Path:
    with writing(path, header) as writer:
        for line in lines:
            writer.write(line)
    return path
