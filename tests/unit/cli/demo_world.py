"""A small world in which all is right, to be spoilt in one place by each test."""

from typing import Any

from cli.demo.checks import Evidence
from cli.demo.state import ID_LABEL, MODEL_LABEL, VERSION_LABEL, Life, Named, Record, Seen
from shared.objects import Kind, ObjectKey

SECRET = "s3cr3t-0123"
URL = "http://{}.example.com"


def life(name: str, uid: str, labels: dict[str, str], **more: Any) -> Life:
    """A life of payments/<name>, Ready; `more`: annotations, mode, url, secret, and fields of Life."""
    obj = {
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "payments", "uid": uid, "labels": labels},
        "spec": {"predictor": {"model": {"storageUri": f"s3://{more.pop('secret', 'models')}/x"}}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "deploymentMode": more.pop("mode", "Standard"),
            "clusterServingRuntimeName": "kserve-sklearnserver",
            "url": more.pop("url", URL.format(name)),
        },
    }
    obj["metadata"]["annotations"] = more.pop("annotations", {})
    return Life(ObjectKey(Kind.ISVC, "payments", name), "model format", uid, obj, **more)


def record(number: str, name: str, uid: str, **fields: Any) -> Record:
    defaults = {
        "registered_model_id": "1",
        "model_version_id": "2",
        "serving_environment_id": "9",
        "desired_state": "DEPLOYED",
        "runtime": "kserve-sklearnserver",
        "custom_properties": {"url": {"string_value": URL.format(name)}},
    }
    return Record(number, f"{name}/{uid}", f"kserve:{uid}/1", **(defaults | fields))


def labels(record_id: str | None = None, model: str = "1", version: str = "2") -> dict[str, str]:
    written = {ID_LABEL: record_id} if record_id else {}
    return {MODEL_LABEL: model, VERSION_LABEL: version} | written


def right() -> Evidence:
    """Every check passes: one object as usual, one re-created, one deleted unwatched, one unlabelled, one unknown."""
    lives = (
        life("scorer", "u1", labels("11"), secret=SECRET),
        life("iris", "u2", labels("12"), gone=True),
        life("iris", "u3", labels("13")),
        life("late", "u4", labels("14"), gone=True, unwatched=True),
        life("knative", "u5", labels(), mode="Knative", url=""),
        life("free", "u6", {}),
        life("orphan", "u7", labels(model="404")),
    )
    records = (
        record("11", "scorer", "u1"),
        record("12", "iris", "u2", desired_state="UNDEPLOYED"),
        record("13", "iris", "u3"),
        record("14", "late", "u4", desired_state="UNDEPLOYED"),
        record("15", "knative", "u5", custom_properties={}),
    )
    seen = Seen(lives, records, (Named("9", "payments"),), {"1": Named("1", "fraud")}, {"2": Named("2", "v1", "1")})
    letters = {lives[-1].key: "registered model 404 does not exist in the registry"}
    return Evidence(seen, letters, ("isvc.evt u1", "isvc.dlq u7"), ("a line",), SECRET, 1)
