"""Objects as the API server sends them, and as the reader hands them on, short enough for tables."""

from typing import Any

import msgspec

from producer.items import Observed, Unidentified
from producer.reading import Reader
from shared.objects import Kind
from shared.reduce import REGISTRY_PREFIXES

READER = Reader(Kind.ISVC, REGISTRY_PREFIXES, "serving.kserve.io/v1beta1")
MODEL = "modelregistry.kubeflow.org/registered-model-id"


def raw(name: str = "a", *, uid: str = "u1", version: int | str = 10, labels: dict[str, str] | None = None) -> Any:
    """An InferenceService; what a test wants to differ it changes in the answer."""
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels or {},
        },
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}}}},
    }


def observed(name: str = "a", *, uid: str = "u1", version: int | str = 10, model: str = "", ns: str = "ns") -> Observed:
    """What the reader makes of it; a model is the only content, so it alone changes the digest."""
    given = raw(name, uid=uid, version=version, labels={MODEL: model} if model else {})
    given["metadata"]["namespace"] = ns
    found = READER.object(given)
    assert not isinstance(found, Unidentified)
    return found


def line(what: str, body: Any) -> bytes:
    return msgspec.json.encode({"type": what, "object": body})
