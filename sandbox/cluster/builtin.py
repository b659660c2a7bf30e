"""What the API server itself fills in or refuses in built-in kinds, as far as clients of this project meet it. Pure."""

import re

from sandbox.cluster.resources import CRDS, Kind, kind_of_definition
from sandbox.cluster.status import Obj, bad_request, invalid

_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def admit(kind: Kind, obj: Obj) -> None:
    """Fill in defaults in place; raises ApiError for what the real server refuses."""
    match kind.resource:
        case "namespaces":
            obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            obj.setdefault("status", {}).setdefault("phase", "Active")
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = labels | {"kubernetes.io/metadata.name": obj["metadata"]["name"]}
        case "services":
            obj.setdefault("spec", {}).setdefault("type", "ClusterIP")
        case "events":
            _check_event(obj)
        case "leases.coordination.k8s.io":
            _check_lease(obj)
        case resource if resource == CRDS:
            _check_definition(obj)


def _check_event(obj: Obj) -> None:
    involved = (obj.get("involvedObject") or {}).get("namespace", "")
    namespace = obj["metadata"]["namespace"]
    if (involved or "default") != namespace:
        message = f'Invalid value: "{involved}": does not match event.namespace'
        raise invalid("Event", "", obj["metadata"]["name"], ("involvedObject.namespace", "FieldValueInvalid", message))


def _check_lease(obj: Obj) -> None:
    spec = obj.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        if spec.get(field) is not None and not _MICRO_TIME.fullmatch(str(spec[field])):
            # The real server parses exactly six digits of a second.
            raise bad_request(f'Lease in version "v1" cannot be handled as a Lease: parsing time "{spec[field]}"')
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        if spec.get(field) is not None and spec[field] < least:
            message = f"Invalid value: {spec[field]}: must be at least {least}"
            name = obj["metadata"]["name"]
            raise invalid("Lease", "coordination.k8s.io", name, (f"spec.{field}", "FieldValueInvalid", message))


def _check_definition(obj: Obj) -> None:
    name = obj["metadata"]["name"]
    try:
        kind = kind_of_definition(obj)
    except (KeyError, TypeError, StopIteration) as error:
        cause = ("spec", "FieldValueRequired", f"Required value: {error}")
        raise invalid("CustomResourceDefinition", "apiextensions.k8s.io", name, cause) from error
    if kind.resource != name:
        message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        cause = ("metadata.name", "FieldValueInvalid", message)
        raise invalid("CustomResourceDefinition", "apiextensions.k8s.io", name, cause)
    obj.setdefault("status", {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []})
