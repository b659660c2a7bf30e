"""What one write makes of an object: the part it may change, its essence, what it answers. Pure; used by `rules.py`."""

from typing import Any

from sandbox.cluster.resources import Kind
from sandbox.cluster.status import Obj, invalid
from sandbox.cluster.store import Entry, encode

SYSTEM_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Metadata that clients cannot change: what a write says about them is ignored."""


def with_part(kind: Kind, old: Obj, wanted: Obj, part: str) -> Obj:
    """Take from `wanted` what this request may change: everything but the status, or nothing but the status."""
    if part == "status":
        return old | {"status": wanted["status"]} if "status" in wanted else _without(old, "status")
    obj = dict(wanted)
    obj["apiVersion"], obj["kind"] = old["apiVersion"], old["kind"]
    if kind.status:
        obj.pop("status", None)
        obj |= {"status": old["status"]} if "status" in old else {}
    metadata = _without(wanted.get("metadata") or {}, *SYSTEM_METADATA, "managedFields", "selfLink")
    kept = {
        key: old["metadata"][key]
        for key in (*SYSTEM_METADATA, "resourceVersion", "namespace")
        if key in old["metadata"]
    }
    obj["metadata"] = metadata | kept | {"name": old["metadata"]["name"]}
    for key in ("labels", "annotations", "finalizers"):
        if not obj["metadata"].get(key):
            obj["metadata"].pop(key, None)
    return obj


def _without(obj: Obj, *keys: str) -> Obj:
    return {key: value for key, value in obj.items() if key not in keys}


def essence(obj: Obj) -> Obj:
    """Return what `generation` counts the changes of."""
    return _without(obj, "metadata", "status", "apiVersion", "kind")


def check_no_new_finalizers(kind: Kind, old: Obj, new: Obj) -> None:
    added = set(new["metadata"].get("finalizers") or []) - set(old["metadata"].get("finalizers") or [])
    if added:
        message = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        cause = ("metadata.finalizers", "FieldValueForbidden", message + repr(sorted(added)))
        raise invalid(kind.kind, kind.group, new["metadata"]["name"], cause)


def as_answer(current: Entry, obj: Obj) -> Entry:
    """Return what the remover of the last finalizer is told: the object at its old resourceVersion."""
    return Entry(
        current.namespace,
        current.name,
        current.uid,
        current.version,
        current.labels,
        {},
        deleting=True,
        raw=encode(obj),
    )


def selectable_fields(kind: Kind, obj: Obj) -> dict[str, str]:
    found = {}
    for path in kind.fields:
        value: Any = obj
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        found[path] = "" if value is None else str(value)
    return found
