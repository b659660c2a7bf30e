"""The Kubernetes API and KServe as a model: objects of both kinds, what people do to them, and JSON patches."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from consumer.writeback import MODE_ANNOTATION
from shared.errors import ConflictError
from shared.objects import Kind, ObjectKey, ReducedObject
from shared.reduce import digest_of, reduce_object
from tests.simulation.consumer.chance import Chance

PREFIX = "modelregistry.kubeflow.org/"
ID_LABEL = f"{PREFIX}inference-service-id"
NAMESPACES = ("n1", "n2")
NAMES = ("a", "b", "c")
VERSIONS_OF = {"1": ("11", "12"), "2": ("21", "22"), "3": ("31", "32")}
MISSING = "404"  # neither a model nor a version has this id
NO_ID = "none"
BORN, GOES = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"


@dataclass(frozen=True)
class Content:
    """All of an object but its identity. `model` and `version` are labels, empty where there is none."""

    model: str = ""
    version: str = ""
    id_label: str = ""
    stopped: bool = False
    ready: bool = False
    url: str = ""
    runtime: str = ""
    load_failure: str = ""
    going: bool = False  # it has a deletionTimestamp


@dataclass(frozen=True)
class Living:
    uid: str
    resource_version: int
    content: Content

    def raw(self, key: ObjectKey) -> dict[str, Any]:
        """Return the object as the API server sends it."""
        return _identified(_raw(key.kind, self.content), key, self)

    def reduced(self, key: ObjectKey) -> tuple[bytes, str]:
        """Return body and digest of an event, made by the real reduction once for each content."""
        reduced, digest = _reduced(key.kind, self.content)
        return msgspec.json.encode(_identified(reduced, key, self)), digest

    def decoded(self, key: ObjectKey) -> ReducedObject:
        return msgspec.json.decode(self.reduced(key)[0], type=ReducedObject)


def _identified(form: dict[str, Any], key: ObjectKey, living: Living) -> dict[str, Any]:
    identity = {"name": key.name, "namespace": key.namespace, "uid": living.uid}
    return {**form, "metadata": {**form["metadata"], **identity, "resourceVersion": str(living.resource_version)}}


def _raw(kind: Kind, content: Content) -> dict[str, Any]:
    labels = {f"{PREFIX}registered-model-id": content.model, f"{PREFIX}model-version-id": content.version}
    labels[ID_LABEL] = content.id_label
    conditions = [{"type": "Ready", "status": str(content.ready)}, {"type": "Stopped", "status": str(content.stopped)}]
    model_status: dict[str, Any] = {"transitionStatus": content.load_failure or "UpToDate"}
    if content.ready:
        model_status |= {"states": {"activeModelState": "Loaded"}, "copies": {"totalCopies": 1}}
    address = {"addresses": [{"url": content.url}]} if kind is Kind.LLMISVC else {"url": content.url}
    model = {"modelFormat": {"name": "sklearn"}, "storageUri": f"s3://models/{content.version}"}
    return {
        "apiVersion": f"serving.kserve.io/{kind}",
        "kind": kind.kubernetes_kind,
        "metadata": {
            "name": "x",
            "namespace": "x",
            "uid": "x",
            "resourceVersion": "1",
            "creationTimestamp": BORN,
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {MODE_ANNOTATION: "Standard"}
            | ({"serving.kserve.io/stop": "true"} if content.stopped else {}),
        }
        | ({"deletionTimestamp": GOES} if content.going else {}),
        "spec": {"model": {"uri": "s3://m", "name": "m"}} if kind is Kind.LLMISVC else {"predictor": {"model": model}},
        "status": {
            "conditions": conditions,
            "deploymentMode": "Standard",
            "clusterServingRuntimeName": content.runtime,
            "modelStatus": model_status,
        }
        | (address if content.url else {}),
    }


@lru_cache(maxsize=20_000)
def _reduced(kind: Kind, content: Content) -> tuple[dict[str, Any], str]:
    reduced = reduce_object(_raw(kind, content))
    return reduced, digest_of(reduced)


class Cluster:
    """`version` is etcd's one counter. `changed` is told of every write: key, object before, object after."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[ObjectKey, Living] = {}
        self.uids = 0

    def create(self, key: ObjectKey, content: Content) -> None:
        self.uids += 1
        self.version += 1
        self.objects[key] = Living(f"u{self.uids}", self.version, content)

    def change(self, key: ObjectKey, **changes: Any) -> None:
        self.version += 1
        now = self.objects[key]
        self.objects[key] = replace(now, resource_version=self.version, content=replace(now.content, **changes))

    def delete(self, key: ObjectKey) -> Living:
        """Take the object away; returns its last state, with the resourceVersion of its deletion."""
        self.version += 1
        return replace(self.objects.pop(key), resource_version=self.version)

    def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> str:
        """Apply a JSON patch of ours, and return the value that it writes. Raises ConflictError as the real one."""
        now = self.objects.get(key)
        if now is None:
            raise ConflictError(f"{key}: 404")
        metadata = {"uid": now.uid, "resourceVersion": str(now.resource_version)}
        for operation in operations:
            name = operation["path"].removeprefix("/metadata/")
            if operation["op"] == "test" and metadata[name] != operation["value"]:
                raise ConflictError(f"{key}: 422, the test of {name} failed")
        (write,) = (operation for operation in operations if operation["op"] == "add")
        assert write["path"] == "/metadata/labels/" + ID_LABEL.replace("/", "~1")
        value: str = write["value"]
        self.change(key, id_label=value)
        return value


def a_content(chance: Chance) -> Content:
    """What somebody creates: mostly an indexed object."""
    model = _model(chance)
    return Content(model=model, version=_version(chance, model), stopped=chance.share(0.05))


def a_change(chance: Chance, now: Content) -> dict[str, Any]:
    """What somebody, or KServe, changes in an object."""
    model = _model(chance)
    changes: tuple[dict[str, Any], ...] = (
        {"model": model, "version": _version(chance, model)},
        {"model": model, "version": _version(chance, model)},
        {"version": _version(chance, now.model)},
        {"version": _version(chance, now.model)},
        {"stopped": not now.stopped, "ready": False},
        {"ready": not now.ready and not now.stopped, "url": now.url or "http://first", "runtime": "kserve"},
        {"ready": not now.ready and not now.stopped, "url": now.url or "http://first", "runtime": "kserve"},
        {"url": chance.choice(("", "http://one", "http://two"))},
        {"runtime": chance.choice(("kserve", "triton"))},
        {"load_failure": chance.choice(("", "BlockedByFailedLoad"))},
        {"id_label": chance.choice(("", "7"))},  # somebody tampers with our id
    )
    return chance.choice(changes)


def _model(chance: Chance) -> str:
    return chance.choice((*VERSIONS_OF, *VERSIONS_OF, "", "", MISSING if chance.share(0.3) else "1"))


def _version(chance: Chance, model: str) -> str:
    own = VERSIONS_OF.get(model, ("11",))
    if chance.share(0.1):
        return chance.choice(("21", MISSING, NO_ID))  # another model's, perhaps; nobody's; no id
    return chance.choice(("", *own, *own))
