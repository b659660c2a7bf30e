"""What a KServe controller writes next: from an object and what was deployed for it to the next step. Pure.

Played after streams recorded from KServe 0.20 (tests/captures). A reconcile is a `Script`: steps with the delay before
each. `next_step` looks at the object and at `Deployed`, what the played cluster runs for it, and returns one step; the
caller waits, applies it to the object as it is then, and asks again.

Played: finalizer; the status of a start, of a rollout, of a model that cannot be loaded, of an invalid spec; stop and
resume; deletion; ModelMesh and Knative (one status, since neither is installed); LLMInferenceService with and without
router. Not played: scaling, autoscalers, canaries, Recreate, a Knative that serves.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from sandbox.cluster import statuses
from sandbox.cluster.admission import KNATIVE, MODEL_MESH, mode_of
from sandbox.cluster.status import Obj
from sandbox.cluster.store import encode

FINALIZER = "inferenceservice.finalizers"
LLM_FINALIZER = "serving.kserve.io/llmisvc-finalizer"
STOP = "serving.kserve.io/stop"
_UNCOPIED = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "modelFormat",
    STOP,
    "serving.kserve.io/deploymentMode",
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
    "internal.serving.kserve.io/storage-initializer-sourceuri",
)
"""Annotations that KServe does not copy to the pods."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """What runs for an object: the pod template, the Deployment's generation, and where the script is."""

    template: str = ""
    generation: int = 0
    script: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One write: `write` names a function of `statuses` or a change of finalizers; `after` holds once it is done."""

    delay_s: float
    write: str
    after: Deployed


@dataclass(frozen=True, slots=True)
class Runtimes:
    """The ClusterServingRuntimes of the played cluster, by model format."""

    by_format: tuple[tuple[str, str], ...] = (
        ("sklearn", "kserve-sklearnserver"),
        ("xgboost", "kserve-xgbserver"),
        ("lightgbm", "kserve-lgbserver"),
        ("pmml", "kserve-pmmlserver"),
        ("paddle", "kserve-paddleserver"),
        ("mlflow", "kserve-mlserver"),
        ("tensorflow", "kserve-tensorflow-serving"),
        ("pytorch", "kserve-torchserve"),
        ("triton", "kserve-tritonserver"),
        ("onnx", "kserve-tritonserver"),
        ("huggingface", "kserve-huggingfaceserver"),
    )

    def choose(self, isvc: Obj) -> tuple[str, tuple[str, str] | None]:
        """Return the runtime's name, empty for custom containers, or the failure (reason, message)."""
        model = (isvc["spec"].get("predictor") or {}).get("model")
        if not isinstance(model, dict):
            return "", None
        by_format = dict(self.by_format)
        asked = model.get("runtime")
        if asked:
            known = asked in by_format.values()
            return (asked, None) if known else ("", ("RuntimeNotRecognized", "Waiting for runtime to become available"))
        chosen = by_format.get((model.get("modelFormat") or {}).get("name", ""))
        if chosen is None:
            return "", ("NoSupportingRuntime", "No runtime found to support specified framework/version")
        return chosen, None


@dataclass(frozen=True, slots=True)
class World:
    """What the played controller knows besides the object."""

    runtimes: Runtimes = Runtimes()
    uncopied_annotations: frozenset[str] = frozenset()
    """The `serviceAnnotationDisallowedList` of KServe's ConfigMap."""
    now: str = ""
    """The present time, for conditions."""


# Delays in seconds as measured, with pods that take about three seconds.
_START = (("started", 0.06), ("unavailable", 0.1), ("loading", 0.5), ("pending", 1.1), ("ready", 1.3), ("loaded", 0.03))
_START_CUSTOM = (("started", 0.06), ("unavailable", 0.1), ("ready", 1.9), ("loaded", 0.03))
_START_FAILING = (("started", 0.06), ("unavailable", 0.1), ("loading", 0.5), ("failed", 1.1))
_ROLLOUT_END = (("loaded", 1.0), ("surge", 1.8), ("rolled_out", 0.3), ("surge_over", 1.4))
_ROLLOUT = (("rolling", 0.2), ("observed", 0.05), ("reloading", 0.7), *_ROLLOUT_END)
_ROLLOUT_CUSTOM = (("rolling", 0.2), ("observed", 0.05), *_ROLLOUT_END[1:])
_ROLLOUT_FAILING = (("rolling", 0.2), ("observed", 0.05), ("reloading", 0.7), ("failed", 1.1))

SCRIPTS: dict[str, tuple[tuple[str, float], ...]] = {
    "start": _START,
    "start-custom": _START_CUSTOM,
    "start-failing": _START_FAILING,
    "start-stuck": _START_FAILING[:2],
    # A change before the first Ready: the Deployment is there already.
    "restart": (("observed", 0.2), ("retry", 0.2), *_START[2:]),
    "restart-custom": (("observed", 0.2), *_START_CUSTOM[2:]),
    "restart-failing": (("observed", 0.2), ("retry", 0.2), *_START_FAILING[2:]),
    "restart-stuck": (("observed", 0.2),),
    "rollout": _ROLLOUT,
    "rollout-custom": _ROLLOUT_CUSTOM,
    "rollout-failing": _ROLLOUT_FAILING,
    "rollout-stuck": _ROLLOUT_CUSTOM[:2],
    "stop": (("stopped", 0.04), ("runtime_restored", 0.02)),
    "invalid": (("invalid", 0.03),),
    "absent": (("absent", 0.02),),
    "llm-start": (("llm_started", 0.6), ("llm_unavailable", 0.4), ("llm_ready", 3.0)),
    "llm-rollout": (("llm_observed", 0.1), ("llm_ready", 3.0)),
    "llm-scale": (("llm_observed", 0.1), ("llm_unavailable", 0.7), ("llm_ready", 2.4)),
}


def next_step(obj: Obj, deployed: Deployed, world: World) -> Step | None:
    """Return what the controller writes next about `obj`, or None while nothing is to do."""
    llm = obj["kind"] == "LLMInferenceService"
    finalizer = LLM_FINALIZER if llm else FINALIZER
    finalizers = obj["metadata"].get("finalizers") or []
    if "deletionTimestamp" in obj["metadata"]:
        return Step(0.05, "release", deployed) if finalizer in finalizers else None
    mesh = not llm and mode_of(obj) == MODEL_MESH
    if mesh and "transformer" not in obj["spec"]:
        return None if "status" in obj else Step(0.02, "absent", deployed)
    if finalizer not in finalizers:
        return Step(0.03, "finalize", deployed)
    if mesh:
        return None
    return _reconcile(obj, deployed, world)


def _reconcile(obj: Obj, deployed: Deployed, world: World) -> Step | None:
    wanted = template(obj, world)
    if wanted != deployed.template:
        deployed = _deploy(obj, deployed, wanted, world)
    steps = SCRIPTS[deployed.script]
    if deployed.step >= len(steps):
        return None
    write, delay_s = steps[deployed.step]
    return Step(delay_s, write, replace(deployed, step=deployed.step + 1))


def is_stop(annotations: Obj) -> bool:
    """Whether the annotations stop the object; KServe compares without case."""
    return str(annotations.get(STOP, "")).lower() == "true"


def _deploy(obj: Obj, deployed: Deployed, wanted: str, world: World) -> Deployed:
    """Begin the script for a new pod template."""
    if obj["kind"] == "LLMInferenceService":
        scaled = deployed.template.partition(":")[2] == wanted.partition(":")[2]
        script = "llm-start" if not deployed.generation else "llm-scale" if scaled else "llm-rollout"
        return Deployed(wanted, deployed.generation + 1, script)
    annotations = obj["metadata"].get("annotations") or {}
    if mode_of(obj) == KNATIVE:
        return Deployed(wanted, 0, "absent")
    if world.runtimes.choose(obj)[1]:
        return Deployed(wanted, 0, "invalid")
    if is_stop(annotations):
        return Deployed(wanted, 0, "stop")
    phase = "start" if not deployed.generation else "rollout" if obj.get("status", {}).get("url") else "restart"
    return Deployed(wanted, deployed.generation + 1, phase + _variant(obj["spec"]["predictor"]))


def _variant(predictor: Obj) -> str:
    """Tell what will become of the pods: a URI or image that says `missing` or `does-not-exist` never works."""
    model = predictor.get("model")
    source = encode(model if isinstance(model, dict) else {"containers": predictor.get("containers")}).decode()
    broken = any(word in source for word in ("does-not-exist", "/missing", "ftp://"))
    if isinstance(model, dict) and (model.get("storageUri") or "storageUris" in predictor):
        return "-failing" if broken else ""
    return "-stuck" if broken else "-custom"


def template(obj: Obj, world: World) -> str:
    """Digest what reaches the pods: two objects with the same digest run the same pods.

    For an LLMInferenceService the replicas stand before the colon, the pods after it.
    """
    spec = obj["spec"]
    if obj["kind"] == "LLMInferenceService":
        pods = {key: value for key, value in spec.items() if key != "replicas"}
        return f"{spec.get('replicas', 1)}:{_digest(pods)}"
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    pods = {}
    for name in ("predictor", "transformer", "explainer"):
        if name in spec:
            component = spec[name] or {}
            pods[name] = {"spec": component, "labels": labels | (component.get("labels") or {})}
    annotations = metadata.get("annotations") or {}
    copied = {k: v for k, v in annotations.items() if k not in _UNCOPIED and k not in world.uncopied_annotations}
    stopped = is_stop(annotations)
    return _digest({"stopped": True, "mode": mode_of(obj)} if stopped else {"pods": pods, "annotations": copied})


def _digest(value: Any) -> str:
    return hashlib.sha256(encode({"of": value})).hexdigest()[:16]


def apply_step(obj: Obj, step: Step, world: World) -> tuple[str, Obj]:
    """Return (part, object) after a step: `part` is "status" or "" for the finalizers, as `Cluster.update` takes it."""
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    own = LLM_FINALIZER if obj["kind"] == "LLMInferenceService" else FINALIZER
    match step.write:
        case "finalize":
            left = [*finalizers, own]
        case "release":
            left = [name for name in finalizers if name != own]
        case write:
            runtime, failure = world.runtimes.choose(obj)
            deployment = (step.after.generation, step.after.template)
            facts = statuses.Facts(obj, deployment, runtime, failure, world.now)
            return "status", obj | {"status": statuses.WRITES[write](facts)}
    return "", obj | {"metadata": metadata | {"finalizers": left}}
