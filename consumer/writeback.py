"""What writing our id to an object would do to its pods, and the patch that writes it. Pure.

KServe copies labels and annotations of an InferenceService into its pod template, so a write can replace serving pods.
Measured with KServe 0.20 in every mode and state (docs/write-back.md); what is not known to be harmless counts as a
restart. Three signals that look right are not used, because in Standard mode they say nothing about a rollout:
`observedGeneration` (a copy of the Deployment's), `Ready` (False during a scale-up while pods serve), and
`transitionStatus` (UpToDate in the middle of a rollout).
"""

from enum import StrEnum
from typing import Any

import msgspec

from shared.objects import ReducedObject

MODE_NAMES = {"RawDeployment": "Standard", "Serverless": "Knative"}  # the old names of KServe's deployment modes
MODE_ANNOTATION = "serving.kserve.io/deploymentMode"


class WriteCost(StrEnum):
    """What a write costs, from nothing to an interruption."""

    FREE = "free"
    POD_START = "pod-start"  # no serving pod is touched, one more pod is started and thrown away
    RESTART = "restart"  # serving pods are replaced


class WriteBack(StrEnum):
    """Which writes are allowed (setting WRITE_BACK)."""

    OFF = "off"
    FREE = "free"
    SAFE = "safe"
    ALWAYS = "always"

    def allows(self, cost: WriteCost) -> bool:
        match self:
            case WriteBack.OFF:
                return False
            case WriteBack.FREE:
                return cost is WriteCost.FREE
            case WriteBack.SAFE:
                return cost is not WriteCost.RESTART
            case WriteBack.ALWAYS:
                return True


class WriteBackForm(StrEnum):
    """Where the id is written (setting WRITE_BACK_FORM)."""

    LABEL = "label"
    ANNOTATION = "annotation"


class KServeLists(msgspec.Struct, frozen=True):
    """The keys that KServe keeps from pods: `inferenceService` in its ConfigMap `inferenceservice-config`."""

    annotations: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()


class Target(msgspec.Struct, frozen=True):
    """Where the id goes: the key, as label or annotation, and what KServe keeps from pods."""

    key: str
    form: WriteBackForm
    lists: KServeLists = KServeLists()

    def value_on(self, obj: ReducedObject) -> str | None:
        metadata = obj.metadata
        return (metadata.labels if self.form is WriteBackForm.LABEL else metadata.annotations).get(self.key)


def cost_of(obj: ReducedObject, target: Target) -> WriteCost:
    """Return what writing the target would cost on this object as it stands."""
    if never_reaches_pods(obj, target) or _has_no_pods(obj):
        return WriteCost.FREE
    if deployment_mode(obj) == "Standard" and (_never_ready(obj) or _single_pod_rolling(obj)):
        return WriteCost.POD_START
    return WriteCost.RESTART


def patch_operations(
    obj: ReducedObject, target: Target, value: str, *, test_resource_version: str | None
) -> list[dict[str, Any]]:
    """Return the JSON patch that writes `value` to the target on exactly this object, and not on a namesake.

    An object without any annotation has no map to add a key to (422), and a new map would replace one that has appeared
    meanwhile: then the patch holds for this resourceVersion only. Labels are always there: it is indexed by one.
    """
    metadata = obj.metadata
    map_absent = target.form is WriteBackForm.ANNOTATION and not metadata.has_annotations
    tested = test_resource_version or (metadata.resource_version if map_absent else None)
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata.uid}]
    if tested is not None:
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": tested})
    path = "/metadata/labels" if target.form is WriteBackForm.LABEL else "/metadata/annotations"
    if map_absent:
        operations.append({"op": "add", "path": path, "value": {target.key: value}})
    else:
        escaped = target.key.replace("~", "~0").replace("/", "~1")
        operations.append({"op": "add", "path": f"{path}/{escaped}", "value": value})
    return operations


def deployment_mode(obj: ReducedObject) -> str:
    """Return Standard, Knative or ModelMesh: the status, which wins in KServe, else the annotation; "" if unknown."""
    name = obj.status.deployment_mode or obj.metadata.annotations.get(MODE_ANNOTATION, "")
    return MODE_NAMES.get(name, name)


def never_reaches_pods(obj: ReducedObject, target: Target) -> bool:
    """Whether a write is free in every state of the object, and not only in this one: stopped, or without replicas.

    A judgement of the state may be old when the write arrives: an event can have waited for an hour.
    """
    if obj.kind == "LLMInferenceService":
        return True  # its pods take labels from spec.labels, nothing from the metadata
    if deployment_mode(obj) == "ModelMesh" and obj.spec.transformer is None:
        return True  # pods belong to the ServingRuntime
    if target.form is WriteBackForm.ANNOTATION:
        return target.key in target.lists.annotations
    if deployment_mode(obj) == "Knative" and target.key in target.lists.labels:
        return True
    return _is_preset(obj, target.key)


def _is_preset(obj: ReducedObject, key: str) -> bool:
    """Whether every pod template has a label of this key of its own, which wins. Workers have their predictor's."""
    templates = (*obj.spec.components, *(each.predictor for each in obj.spec.canary))
    return bool(obj.spec.components) and all(each is not None and key in each.labels for each in templates)


def _has_no_pods(obj: ReducedObject) -> bool:
    if obj.status.condition("Stopped").status == "True":
        # Resumed, it has a Deployment some 50 ms later, and the condition goes after that.
        return obj.is_stopped
    ready = obj.status.condition("Ready").status == "True"
    return ready and deployment_mode(obj) == "Standard" and _copies(obj) == 0 and not _has_further_pods(obj)


def _has_further_pods(obj: ReducedObject) -> bool:
    """Whether it has pods that `copies`, which are the predictor's, do not count: they may serve."""
    return (
        len(obj.spec.components) != 1
        or bool(obj.spec.canary)
        or any(part.worker_spec is not None for part in obj.spec.components)
    )


def _never_ready(obj: ReducedObject) -> bool:
    return obj.status.url == "" and obj.status.model_status.states.active_model_state == ""


def _single_pod_rolling(obj: ReducedObject) -> bool:
    """One replica in a rolling update: the new pod, which the write throws away, does not serve yet.

    Not with a transformer, an explainer, canaries or workers: their pods serve, and a label replaces them, too.
    """
    reason = obj.status.condition("PredictorReady").reason
    rolling = reason not in {"", "NewReplicaSetAvailable"}  # KServe before 0.16 gives no reason: not known
    ready = obj.status.condition("Ready").status == "True"
    return ready and rolling and _copies(obj) == 1 and not _has_further_pods(obj)


def _copies(obj: ReducedObject) -> int | None:
    copies = obj.status.model_status.copies
    return None if copies is None else copies.total_copies
