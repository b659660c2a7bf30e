"""KServe's webhooks, as far as they show in the stream: defaults and refusals for InferenceServices. Pure."""

import re
from typing import Any

from sandbox.cluster.status import ApiError, Obj

MODE = "serving.kserve.io/deploymentMode"
STANDARD, KNATIVE, MODEL_MESH = "Standard", "Knative", "ModelMesh"
_OLD_NAMES = {"RawDeployment": STANDARD, "Serverless": KNATIVE}

_LEGACY = ("sklearn", "tensorflow", "xgboost", "pytorch", "onnx", "huggingface", "triton", "pmml", "lightgbm", "paddle")
_PROTOCOLS = {"triton": "v2", "onnx": "v2", "pytorch": "v1"}
_COMPONENTS = ("predictor", "transformer", "explainer")
_CUSTOM_RESOURCES = {"cpu": "1", "memory": "2Gi"}
_EXACTLY_ONE = (
    "exactly one of [Name, SKLearn, XGBoost, Tensorflow, PyTorch, Triton, ONNX, HuggingFace, PMML, LightGBM, Paddle, "
    "Model, StorageUris, StorageContainerName, WorkerSpec, PodSpec] must be specified in PredictorSpec"
)
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_WEBHOOK = 'admission webhook "inferenceservice.kserve-webhook-server.'


def _denied(message: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{_WEBHOOK}validator" denied the request: {message}')


def admit(obj: Obj, old: Obj | None) -> Obj:
    """Return the object with KServe's defaults; raises ApiError 403 for what its validator denies."""
    predictor = (obj.get("spec") or {}).get("predictor")
    if not isinstance(predictor, dict) or not predictor:
        # The real defaulter panics here, and says so.
        panic = "panic: runtime error: index out of range [0] with length 0 [recovered]"
        raise ApiError(500, "InternalError", f'{_WEBHOOK}defaulter" denied the request: {panic}')
    _default_model(predictor)
    for component in _COMPONENTS:
        _default_containers((obj["spec"].get(component) or {}).get("containers"))
    _default_annotations(obj, predictor, old)
    _validate(obj, predictor, old)
    return obj


def _default_model(predictor: Obj) -> None:
    """Turn a field named after a framework into `model`, over one that stands there: so manifests can be re-applied."""
    used = [framework for framework in _LEGACY if isinstance(predictor.get(framework), dict)]
    if len(used) > 1:
        raise _denied(_EXACTLY_ONE)
    for framework in used:
        legacy = dict(predictor.pop(framework))
        if "runtimeVersion" in legacy and framework != "triton":
            del legacy["runtimeVersion"]
        predictor["model"] = {"modelFormat": {"name": framework}} | legacy
    model = predictor.get("model")
    if isinstance(model, dict):
        model.setdefault("modelFormat", {"name": ""})
        model.setdefault("name", "")
        model.setdefault("resources", {})
        protocol = _PROTOCOLS.get(model["modelFormat"].get("name", ""))
        if protocol:
            model.setdefault("protocolVersion", protocol)


def _default_containers(containers: Any) -> None:
    if not isinstance(containers, list) or not containers:
        return
    resources = containers[0].setdefault("resources", {})
    for bound in ("limits", "requests"):
        resources[bound] = _CUSTOM_RESOURCES | resources.get(bound, {})
    containers[0].setdefault("name", "kserve-container")


def _default_annotations(obj: Obj, predictor: Obj, old: Obj | None) -> None:
    annotations = dict(obj["metadata"].get("annotations") or {})
    before = mode_of(old) if old else ""
    mode = annotations.get(MODE) or before or STANDARD
    annotations[MODE] = _OLD_NAMES.get(mode, mode)
    format_name = ((predictor.get("model") or {}).get("modelFormat") or {}).get("name")
    if format_name and annotations[MODE] != MODEL_MESH:
        annotations["modelFormat"] = format_name
    obj["metadata"]["annotations"] = annotations


def mode_of(isvc: Obj) -> str:
    """Return the deployment mode of an object that went through the webhooks: the status wins over the annotation."""
    annotations = isvc["metadata"].get("annotations") or {}
    mode: str = (isvc.get("status") or {}).get("deploymentMode") or annotations.get(MODE, STANDARD)
    return mode


def _validate(obj: Obj, predictor: Obj, old: Obj | None) -> None:
    name = obj["metadata"]["name"]
    if not _NAME.fullmatch(name) and re.fullmatch(r"[-a-z0-9.]+", name):
        # What is no Kubernetes name at all is left to the API server (422).
        rule = "must consist of lower case alphanumeric characters or '-', and must start with alphabetical character."
        raise _denied(f'the InferenceService "{name}" is invalid: a InferenceService name {rule}')
    known = {*_LEGACY, "model", "containers", "workerSpec", "storageUris", "storageContainerName"}
    if not known & predictor.keys():
        raise _denied(_EXACTLY_ONE)
    if old is not None:
        before, after = mode_of(old), obj["metadata"]["annotations"][MODE]
        if before != after:
            raise _denied(f"update rejected: deploymentMode cannot be changed from '{before}' to '{after}'")
