"""Which Deployments are a predecessor's controller, and whether it links InferenceServices to a registry now. Pure.

Kubeflow's is a Deployment of its own, switched on by INFERENCE_SERVICE_CONTROLLER=managed. Open Data Hub's does much
else, and goes on to run: what counts is its switch MODELREGISTRY_STATE=managed, in its first versions an argument.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_SWITCHES: Final = ("INFERENCE_SERVICE_CONTROLLER", "MODELREGISTRY_STATE")
_ON: Final = "managed"
_ARGUMENT: Final = "--model-registry-inference-reconcile"
_IMAGES: Final = ("kubeflow/hub/controller", "kubeflow/model-registry/controller", "odh-model-controller")

ConfigMaps = Mapping[tuple[str, str], Mapping[str, str]]
"""What ConfigMaps hold, by (namespace, name)."""


class Controller(msgspec.Struct, frozen=True, order=True):
    """A Deployment that writes what isvc-sync writes. `why`: by what it was known, and that it is on."""

    namespace: str
    name: str
    why: str

    @property
    def way_out(self) -> str:
        return (
            f"kubectl -n {self.namespace} scale deployment {self.name} --replicas=0, or, where an operator would undo "
            "that or it has other work, switch it off where that is set"
        )


def config_maps_of(deployments: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the ConfigMaps from which a switch takes its value."""
    return {
        (_metadata(each, "namespace"), reference["name"])
        for each in deployments
        for container in _containers(each)
        for variable in _switches(container)
        if (reference := _reference(variable)) is not None
    }


def running(deployments: Iterable[Mapping[str, Any]], config_maps: ConfigMaps) -> tuple[Controller, ...]:
    """Return the predecessors that run and are on. What cannot be read counts as on."""
    found = []
    for each in deployments:
        if not _runs(each):
            continue
        whys = [why for container in _containers(each) if (why := _on(container, each, config_maps))]
        if whys:
            found.append(Controller(_metadata(each, "namespace"), _metadata(each, "name"), whys[0]))
    return tuple(sorted(found))


def _on(container: Mapping[str, Any], deployment: Mapping[str, Any], config_maps: ConfigMaps) -> str:
    """Return why a container counts as a predecessor's that is on; nothing where it does not."""
    arguments = [str(each) for part in ("command", "args") for each in container.get(part) or ()]
    if any(each in {_ARGUMENT, f"{_ARGUMENT}=true"} for each in arguments):
        return _ARGUMENT
    namespace = _metadata(deployment, "namespace")
    for variable in _switches(container):
        value = _value(variable, namespace, config_maps)
        if value == _ON:
            return f"{variable['name']}={_ON}"
        if value is None:
            return f"{variable['name']}, whose value cannot be read"
    image = str(container.get("image") or "")
    known = next((each for each in _IMAGES if each in image), "")
    if known and container.get("envFrom") and not _switches(container):
        return f"image {known}, whose switch may come from envFrom"
    return ""


def _value(variable: Mapping[str, Any], namespace: str, config_maps: ConfigMaps) -> str | None:
    """Return the value of a variable; None where it comes from what was not read."""
    if "valueFrom" not in variable:
        return str(variable.get("value") or "")
    reference = _reference(variable)
    if reference is None or (namespace, reference["name"]) not in config_maps:
        return None
    return config_maps[namespace, reference["name"]].get(reference.get("key", ""), "")


def _reference(variable: Mapping[str, Any]) -> dict[str, str] | None:
    found = (variable.get("valueFrom") or {}).get("configMapKeyRef")
    return found if isinstance(found, dict) and found.get("name") else None


def _switches(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in container.get("env") or () if each.get("name") in _SWITCHES]


def _containers(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    template = (deployment.get("spec") or {}).get("template") or {}
    return list((template.get("spec") or {}).get("containers") or ())


def _runs(deployment: Mapping[str, Any]) -> bool:
    """Whether there are pods, or are meant to be. Absent means one."""
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return bool(wanted) or bool((deployment.get("status") or {}).get("replicas"))


def _metadata(deployment: Mapping[str, Any], field: str) -> str:
    return str((deployment.get("metadata") or {}).get(field) or "")
