"""The statuses that KServe writes, one function for each kind of write: from facts to a whole new status. Pure.

Which one follows which, and when, is `kserve.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.cluster.admission import mode_of
from sandbox.cluster.status import Obj

_UNAVAILABLE = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
_NO_INGRESS = ("False", "Predictor ingress not created", "")
_INFO = ("Stopped", "TransformerReady", "MainWorkloadReady", "PresetsCombined", "HTTPRoutesReady")
_NO_GATEWAY = "Managed HTTPRoute references non-existent Gateway kserve/kserve-ingress-gateway"

Condition = tuple[str, str, str]
"""Status, reason, message; an empty reason or message is left out."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a status is made from. `deployment` is the Deployment's generation and its pod template's digest."""

    obj: Obj
    deployment: tuple[int, str]
    runtime: str
    failure: tuple[str, str] | None
    now: str

    @property
    def status(self) -> Obj:
        status: Obj = self.obj.get("status") or {}
        return status

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.obj["metadata"]["namespace"])

    @property
    def components(self) -> list[str]:
        return [name for name in ("predictor", "transformer") if name in self.obj["spec"]]


def _conditions(facts: Facts, changes: dict[str, Condition], *, fresh: bool = False) -> list[Obj]:
    """Return all conditions with some changed; a time moves only with its condition, as KServe does it."""
    old = {} if fresh else {condition["type"]: condition for condition in facts.status.get("conditions") or []}
    for name, (status, reason, message) in changes.items():
        new: Obj = {"type": name, "status": status}
        new |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
        new |= {"severity": "Info"} if name in _INFO else {}
        before = {key: value for key, value in old.get(name, {}).items() if key != "lastTransitionTime"}
        if before != new:
            old[name] = new | {"lastTransitionTime": facts.now}
    return [old[name] for name in sorted(old)]


def _with(facts: Facts, changes: dict[str, Condition], **fields: Any) -> Obj:
    return facts.status | {"conditions": _conditions(facts, changes)} | fields


def _model(facts: Facts, target: str, transition: str, active: str | None = None) -> Obj:
    """Return modelStatus with other states; without `active` the active one stays."""
    model: Obj = facts.status.get("modelStatus", {})  # lastFailureInfo stays for ever, as in the recordings
    states = dict(model.get("states") or {"activeModelState": ""})
    states["targetModelState"] = target
    if active is not None:
        states["activeModelState"] = active
    return model | {"states": states, "transitionStatus": transition}


def _copies(facts: Facts, total: int) -> Obj:
    model = facts.status.get("modelStatus", {})
    return {"modelStatus": model | {"copies": {"failedCopies": 0, "totalCopies": total}}}


def _for_components(facts: Facts, condition: Condition) -> dict[str, Condition]:
    return {name.capitalize() + "Ready": condition for name in facts.components}


def _replica_set(facts: Facts, component: str) -> Condition:
    name = f"{facts.name}-{component}-{facts.deployment[1][:9]}"
    return "True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.'


def _url(facts: Facts, component: str = "") -> str:
    middle = f"-{component}" if component else ""
    return f"http://{facts.name}{middle}-{facts.namespace}.example.com"


def absent(facts: Facts) -> Obj:
    """ModelMesh or Knative that is not installed: one status, then nothing."""
    unknown = dict.fromkeys(("IngressReady", "PredictorReady", "Ready"), ("Unknown", "", ""))
    conditions = _conditions(facts, unknown, fresh=True)
    return {"conditions": conditions, "deploymentMode": mode_of(facts.obj), "modelStatus": {"transitionStatus": ""}}


def invalid(facts: Facts) -> Obj:
    reason, message = facts.failure or ("", "")
    states = {"activeModelState": "", "targetModelState": "FailedToLoad"}
    failure = {"reason": reason, "message": message}
    return absent(facts) | {
        "modelStatus": {"lastFailureInfo": failure, "states": states, "transitionStatus": "InvalidSpec"}
    }


def started(facts: Facts) -> Obj:
    """Begin: the first status of a start, and of a resume."""
    waiting = _for_components(facts, ("False", "", ""))
    ingress = {"IngressReady": _NO_INGRESS, "Ready": _NO_INGRESS, "Stopped": ("False", "", "")}
    states = {"activeModelState": "", "targetModelState": "Pending"}
    before = facts.status.get("modelStatus", {})
    failure = {key: value for key, value in before.items() if key == "lastFailureInfo"}
    return _runtime(facts) | {
        "components": {name: {} for name in facts.components},
        "conditions": _conditions(facts, waiting | ingress, fresh=True),
        "deploymentMode": mode_of(facts.obj),
        "modelStatus": failure | {"copies": {"failedCopies": 0}, "states": states, "transitionStatus": "InProgress"},
    }


def _runtime(facts: Facts) -> Obj:
    return {"clusterServingRuntimeName": facts.runtime} if facts.runtime else {}


def unavailable(facts: Facts) -> Obj:
    return _with(facts, _for_components(facts, _UNAVAILABLE), observedGeneration=facts.deployment[0])


def observed(facts: Facts) -> Obj:
    return facts.status | _runtime(facts) | {"observedGeneration": facts.deployment[0]}


def retry(facts: Facts) -> Obj:
    return facts.status | {"modelStatus": _model(facts, "Pending", "InProgress")}


def loading(facts: Facts) -> Obj:
    return facts.status | {"modelStatus": _model(facts, "Loading", "InProgress")}


def pending(facts: Facts) -> Obj:
    return retry(facts)


def failed(facts: Facts) -> Obj:
    failure = {"exitCode": 1, "message": "storage: object does not exist", "reason": "ModelLoadFailed"}
    model = _model(facts, "FailedToLoad", "BlockedByFailedLoad")
    return facts.status | {"modelStatus": model | {"lastFailureInfo": failure}}


def ready(facts: Facts) -> Obj:
    """Become Ready for the first time: url and address appear in the same write."""
    yes = ("True", "", "")
    changes = {"IngressReady": yes, "Ready": yes}
    changes |= {name.capitalize() + "Ready": _replica_set(facts, name) for name in facts.components}
    entry = facts.components[-1]  # the transformer stands in front
    return _with(
        facts,
        changes,
        address={"url": f"http://{facts.name}-{entry}.{facts.namespace}.svc.cluster.local"},
        components={name: {"url": _url(facts, name)} for name in facts.components},
        url=_url(facts),
        **_copies(facts, 1),
    )


def loaded(facts: Facts) -> Obj:
    return facts.status | {"modelStatus": _model(facts, "Loaded", "UpToDate", "Loaded")}


def rolling(facts: Facts) -> Obj:
    available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    return _with(facts, _for_components(facts, available))


def surge(facts: Facts) -> Obj:
    return facts.status | _copies(facts, 2)


def rolled_out(facts: Facts) -> Obj:
    return _with(facts, {name.capitalize() + "Ready": _replica_set(facts, name) for name in facts.components})


def surge_over(facts: Facts) -> Obj:
    return facts.status | _copies(facts, 1)


def stopped(facts: Facts) -> Obj:
    """Empty the status, the runtime's name included; that comes back with the next write."""
    changes = _for_components(facts, ("False", "Stopped", "")) | {"Ready": ("False", "Stopped", "")}
    if facts.status:
        changes["IngressReady"] = ("False", "Stopped", "")
    changes["Stopped"] = ("True", "", "")
    return {
        "conditions": _conditions(facts, changes),
        "deploymentMode": mode_of(facts.obj),
        "modelStatus": {"transitionStatus": ""},
    }


def runtime_restored(facts: Facts) -> Obj:
    return facts.status | _runtime(facts)


def _llm_workload(condition: Condition) -> dict[str, Condition]:
    return {"MainWorkloadReady": condition, "WorkloadsReady": condition}


def _routed(facts: Facts) -> bool:
    return bool((facts.obj["spec"].get("router") or {}).get("route") is not None)


def llm_started(facts: Facts) -> Obj:
    """Begin an LLMInferenceService; with a router, its status names the gateway that does not exist."""
    progressing = ("False", "Progressing", "")
    changes = _llm_workload(progressing) | {"PresetsCombined": ("True", "", "")}
    broken = ("False", "RefsInvalid", _NO_GATEWAY)
    if _routed(facts):
        changes |= {"HTTPRoutesReady": broken, "RouterReady": broken, "Ready": broken}
        return {"conditions": _conditions(facts, changes), "observedGeneration": _generation(facts)}
    changes |= {"RouterReady": ("True", "", ""), "Ready": progressing}
    primary = {"apiGroup": "apps", "kind": "Deployment", "name": f"{facts.name}-kserve", "readyReplicas": 0}
    service = f"{facts.name}-kserve-workload-svc"
    return {
        "addresses": [{"url": f"http://{service}.{facts.namespace}.svc.cluster.local"}],
        "conditions": _conditions(facts, changes),
        "observedGeneration": _generation(facts),
        "workloads": {"primary": primary, "service": {"kind": "Service", "name": service}},
    }


def _generation(facts: Facts) -> int:
    return int(facts.obj["metadata"]["generation"])


def llm_observed(facts: Facts) -> Obj:
    return facts.status | {"observedGeneration": _generation(facts)}


def llm_unavailable(facts: Facts) -> Obj:
    changes = _llm_workload(_UNAVAILABLE)
    return _with(facts, changes if _routed(facts) else changes | {"Ready": _UNAVAILABLE})


def llm_ready(facts: Facts) -> Obj:
    yes = ("True", "", "")
    changes = _llm_workload(yes)
    if _routed(facts):
        return _with(facts, changes)
    workloads = facts.status["workloads"]
    primary = workloads["primary"] | {"readyReplicas": facts.obj["spec"].get("replicas", 1)}
    return _with(facts, changes | {"Ready": yes}, workloads=workloads | {"primary": primary})


WRITES: dict[str, Callable[[Facts], Obj]] = {
    write.__name__: write
    for write in (
        *(absent, invalid, started, unavailable, observed, retry, loading, pending, failed, ready, loaded, rolling),
        *(surge, rolled_out, surge_over, stopped, runtime_restored),
        *(llm_started, llm_observed, llm_unavailable, llm_ready),
    )
}
WRITES["reloading"] = loading
