"""Living objects and records for the tests of what `adopt` and `leave` decide."""

from cli.migration.adoptable import Shelved
from cli.objects import Live
from consumer.records import Record
from shared.objects import Condition, Kind, Metadata, ObjectKey, ReducedObject, Status

PREFIX = "modelregistry.kubeflow.org/"
ID = f"{PREFIX}inference-service-id"
READY = Status(
    deployment_mode="Standard",
    url="http://iris.example",
    conditions=(Condition("Ready", "True"), Condition("PredictorReady", "True", "NewReplicaSetAvailable")),
)
STOPPED = Status(deployment_mode="Standard", conditions=(Condition("Stopped", "True"),))
STOP = {"serving.kserve.io/stop": "true"}


def uid(number: int) -> str:
    return f"0b7c4b0e-6f39-4a8e-9d3b-{number:012x}"


def live(number: int = 1, name: str = "team-a/iris", *, finalizers: tuple[str, ...] = (), **metadata: object) -> Live:
    namespace, _, short = name.partition("/")
    kind = metadata.pop("kind", Kind.ISVC)
    status = metadata.pop("status", READY)
    if status is STOPPED:
        metadata["annotations"] = STOP | metadata.get("annotations", {})
    found = Metadata(short, namespace, uid(number), resource_version="10", **metadata)
    obj = ReducedObject(kind.kubernetes_kind, found, status=status)
    return Live(ObjectKey(kind, namespace, short), uid(number), finalizers, obj, "v1:d")


def theirs(number: int = 1, name: str = "iris", *, record_id: str = "7", namespace: str = "team-a", **others: object):
    """Return a predecessor's record of the object of that number, in the environment of `namespace`."""
    fields = {"external_id": "", "environment_id": "3", "model_id": "1", "deployed": True} | others
    return Shelved("http://mr", Record(id=record_id, name=f"{name}/{uid(number)}", **fields), namespace)
