"""The played KServe writes what the real one wrote: recorded streams, step by step, without times and hashes."""

import itertools
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.cluster import admission
from sandbox.cluster.kserve import Deployed, Runtimes, Step, World, apply_step, next_step
from sandbox.cluster.resources import ISVC, KSERVE_CRDS, NAMESPACES, kind_of_definition
from sandbox.cluster.rules import Cluster, Ids
from sandbox.cluster.status import ApiError
from sandbox.cluster.store import History, Store

CAPTURES = Path(__file__).parents[2] / "captures"
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def new_cluster(*namespaces: str) -> Cluster:
    numbers = itertools.count()
    ids = Ids(lambda: NOW, lambda: f"uid-{next(numbers)}", lambda: "abcde")
    cluster = Cluster(Store(History(), lambda: 0.0), ids)
    for crd in KSERVE_CRDS:
        cluster.serve(kind_of_definition(crd))
    for name in namespaces:
        cluster.create(cluster.kinds[NAMESPACES], "", {"metadata": {"name": name}})
    cluster.admission[ISVC] = admission.admit
    return cluster


class Life:
    """One object under a played controller, without a clock."""

    def __init__(self, obj: dict) -> None:
        self.cluster = new_cluster(obj["metadata"]["namespace"])
        self.kind = next(kind for kind in self.cluster.kinds.values() if kind.kind == obj["kind"])
        self.deployed = Deployed()
        self.world = World(now="2026-11-30T00:00:00Z")
        self.entry = self.cluster.create(self.kind, obj["metadata"]["namespace"], obj)

    @property
    def object(self) -> dict:
        return self.entry.decode()

    def change(self, metadata: dict | None = None, spec: dict | None = None) -> None:
        """What a person does."""
        obj = self.object
        obj["metadata"] |= metadata or {}
        obj["spec"] = spec or obj["spec"]
        self.entry = self.cluster.update(self.kind, self.entry, obj)

    def delete(self) -> None:
        self.cluster.delete(self.kind, self.entry)
        self._reload()

    @property
    def gone(self) -> bool:
        return self.cluster.store.get(self.kind.resource, self.entry.key) is None

    def _reload(self) -> None:
        self.entry = self.cluster.store.get(self.kind.resource, self.entry.key) or self.entry

    def step(self) -> Step | None:
        step = None if self.gone else next_step(self.object, self.deployed, self.world)
        if step is not None:
            self.deployed = step.after
            part, wanted = apply_step(self.object, step, self.world)
            self.cluster.update(self.kind, self.entry, wanted, part=part)
            self._reload()
        return step

    def settle(self) -> list[str]:
        """Do all steps; their names."""
        steps = iter(self.step, None)
        return [step.write for step in itertools.islice(steps, 50)]


def sklearn(name: str = "m", **metadata) -> dict:
    model = {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/v1"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "spec": {"predictor": {"model": model}},
    }


# --- against the recordings ---


def _recorded(story: str, name: str) -> list[dict]:
    """The states of one object of a story, in order; None stands for its end."""
    states: list[dict] = []
    uid = ""
    for text in (CAPTURES / f"{story}.jsonl").read_text().splitlines():
        event = json.loads(text).get("event")
        metadata = event and event["object"]["metadata"]
        if not event or metadata.get("name") != name or metadata["uid"] != (uid or metadata["uid"]):
            continue
        uid = metadata["uid"]
        if event["type"] != "DELETED":
            states.append(event["object"])
    return states


def _by_person(obj: dict) -> dict:
    """What a person decides about an object."""
    metadata = obj["metadata"]
    wishes = {key: metadata.get(key) for key in ("labels", "annotations", "deletionTimestamp")}
    return wishes | {"spec": obj["spec"]}


def _by_kserve(obj: dict) -> dict:
    """What KServe decides about it, without times, hashes and the names of presets."""
    status = dict(obj.get("status") or {})
    for extra in ("annotations", "appliedConfigs"):
        status.pop(extra, None)
    conditions = []
    for condition in status.get("conditions", []):
        kept = {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        if "message" in kept:
            kept["message"] = re.sub(r'"[^"]*"', '"..."', kept["message"])
        conditions.append(kept)
    if conditions:
        status["conditions"] = conditions
    return {"finalizers": obj["metadata"].get("finalizers"), "status": status}


def _segments(states: list[dict]) -> list[tuple[dict, list[dict]]]:
    """Each thing that a person did, with the states that KServe wrote after it."""
    segments: list[tuple[dict, list[dict]]] = []
    for state in states:
        if not segments or _by_person(state) != _by_person(segments[-1][0]):
            segments.append((state, []))
        elif _reason(state) != "NewReplicaSetCreated":  # seen in some streams only: it depends on timing
            written = _by_kserve(state)
            if not segments[-1][1] or written != segments[-1][1][-1]:  # only times moved
                segments[-1][1].append(written)
    return segments


def _reason(state: dict) -> str:
    conditions = (state.get("status") or {}).get("conditions", [])
    return next((c.get("reason", "") for c in conditions if c["type"] == "PredictorReady"), "")


@pytest.mark.parametrize(
    ("story", "name", "changes"),
    [
        ("create-ready-delete", "scorer", None),
        ("rollout", "classifier", 2),  # later rollouts merge two of the writes
        ("stop-and-resume", "model", None),
        ("stop-and-resume", "parked", None),
        ("modelmesh", "trans", None),
        ("knative-not-installed", "model", None),
        ("knative-not-installed", "old", None),
        ("llm-inference-service", "routed", None),
        ("llm-inference-service", "old", None),
        ("never-ready-then-fixed", "runtime", None),
        ("never-ready-then-fixed", "format", None),
    ],
)
def test_the_recorded_story_is_played_again(story: str, name: str, changes: int | None):
    segments = _segments(_recorded(story, name))[:changes]
    first = segments[0][0]
    fresh = {key: value for key, value in first["metadata"].items() if key != "resourceVersion"}
    played = Life({key: value for key, value in first.items() if key != "status"} | {"metadata": fresh})
    for number, (wished, written) in enumerate(segments):
        metadata = wished["metadata"]
        if "deletionTimestamp" in metadata:
            played.delete()
        elif number:
            played.change({key: metadata.get(key, {}) for key in ("labels", "annotations")}, wished["spec"])
        seen = [_by_kserve(played.object)]
        while not played.gone and played.step() is not None:
            if not played.gone and _by_kserve(played.object) != seen[-1]:
                seen.append(_by_kserve(played.object))
        del seen[0]
        assert _order(seen) == _order(written), f"after change {number}"
    assert played.gone == ("deletionTimestamp" in segments[-1][0]["metadata"])


def _order(states: list[dict]) -> list[dict]:
    return json.loads(json.dumps(states, sort_keys=True))


# --- what the recordings do not show, or show elsewhere ---


def test_a_label_replaces_the_pods_of_a_serving_object():
    life = Life(sklearn())
    life.settle()
    life.change({"labels": {"team": "blue"}})
    assert life.settle()[:3] == ["rolling", "observed", "reloading"]
    assert life.deployed.generation == 2


def test_a_label_that_every_component_presets_replaces_nothing():
    obj = sklearn()
    obj["spec"]["predictor"]["labels"] = {"team": "red"}
    life = Life(obj)
    life.settle()
    life.change({"labels": {"team": "blue"}})
    assert life.settle() == []


def test_an_annotation_in_the_disallowed_list_replaces_nothing():
    life = Life(sklearn())
    life.world = World(uncopied_annotations=frozenset({"example.com/id"}), now=life.world.now)
    life.settle()
    life.change({"annotations": life.object["metadata"]["annotations"] | {"example.com/id": "1"}})
    assert life.settle() == []


def test_any_other_annotation_replaces_the_pods():
    life = Life(sklearn())
    life.settle()
    life.change({"annotations": life.object["metadata"]["annotations"] | {"example.com/id": "1"}})
    assert life.deployed.generation == 1
    life.settle()
    assert life.deployed.generation == 2


def test_a_model_that_does_not_exist_never_becomes_ready():
    obj = sklearn()
    obj["spec"]["predictor"]["model"]["storageUri"] = "s3://models/does-not-exist"
    life = Life(obj)
    assert life.settle()[-1] == "failed"
    assert life.object["status"]["modelStatus"]["transitionStatus"] == "BlockedByFailedLoad"
    assert "url" not in life.object["status"]


def test_a_rollout_to_a_model_that_does_not_exist_stays_ready():
    life = Life(sklearn())
    life.settle()
    spec = life.object["spec"]
    spec["predictor"]["model"]["storageUri"] = "s3://models/does-not-exist"
    life.change(spec=spec)
    life.settle()
    status = life.object["status"]
    ready = next(condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert ready["status"] == "True"
    assert status["modelStatus"]["states"] == {"activeModelState": "Loaded", "targetModelState": "FailedToLoad"}
    assert status["url"] == "http://m-ns.example.com"


def test_a_transformer_gives_the_address():
    obj = sklearn()
    obj["spec"]["transformer"] = {"containers": [{"image": "registry.example.com/t:1"}]}
    life = Life(obj)
    life.settle()
    assert life.object["status"]["address"] == {"url": "http://m-transformer.ns.svc.cluster.local"}


def test_a_model_mesh_object_gets_one_status_and_no_finalizer():
    life = Life(sklearn(annotations={"serving.kserve.io/deploymentMode": "ModelMesh"}))
    assert life.settle() == ["absent"]
    assert "finalizers" not in life.object["metadata"]


def test_a_foreign_finalizer_outlives_kserves():
    life = Life(sklearn(finalizers=["example.com/hold"]))
    life.settle()
    life.delete()
    life.settle()
    assert life.object["metadata"]["finalizers"] == ["example.com/hold"]


def test_every_runtime_has_a_format():
    assert all(Runtimes().choose(_with_format(name)) == (runtime, None) for name, runtime in Runtimes().by_format)


def _with_format(name: str) -> dict:
    return {"spec": {"predictor": {"model": {"modelFormat": {"name": name}}}}}


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        ("sklearn", {"modelFormat": {"name": "sklearn"}, "name": "", "resources": {}}),
        ("triton", {"modelFormat": {"name": "triton"}, "name": "", "protocolVersion": "v2", "resources": {}}),
        ("pytorch", {"modelFormat": {"name": "pytorch"}, "name": "", "protocolVersion": "v1", "resources": {}}),
    ],
)
def test_a_field_named_after_a_framework_becomes_model(framework: str, model: dict):
    obj = sklearn() | {"spec": {"predictor": {framework: {"storageUri": "gs://m"}}}}
    admitted = admission.admit(obj, None)
    assert admitted["spec"]["predictor"] == {"model": model | {"storageUri": "gs://m"}}
    assert admitted["metadata"]["annotations"]["modelFormat"] == framework


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"metadata": {"name": "a.b", "namespace": "ns"}}, 403, "must start with alphabetical character"),
        ({"metadata": {"name": "1abc", "namespace": "ns"}}, 403, "must start with alphabetical character"),
        ({"spec": {"predictor": {}}}, 500, "panic"),
        ({"spec": {"predictor": {"sklearn": {}, "xgboost": {}}}}, 403, "exactly one of"),
    ],
)
def test_what_the_webhooks_refuse(change: dict, code: int, words: str):
    with pytest.raises(ApiError, match=words) as refused:
        admission.admit(sklearn() | change, None)
    assert refused.value.code == code


def test_the_deployment_mode_cannot_be_changed_but_renamed():
    life = Life(sklearn())
    life.settle()
    mode = "serving.kserve.io/deploymentMode"
    life.change({"annotations": {mode: "RawDeployment"}})
    assert life.object["metadata"]["annotations"][mode] == "Standard"
    with pytest.raises(ApiError, match="cannot be changed from 'Standard' to 'ModelMesh'"):
        life.change({"annotations": {mode: "ModelMesh"}})
