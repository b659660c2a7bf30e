"""The rules of writing: generation, status subresource, conflicts, finalizers, deletion. Pure: clock and ids are given.

`Cluster` is what HTTP, tests, the played KServe and the player all write through; only `restore` and `vanish` pass by
the rules, for a capture that already obeys them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sandbox.cluster import builtin, status
from sandbox.cluster.resources import BUILT_IN, CRDS, NAMESPACES, Kind, kind_of_definition
from sandbox.cluster.status import Obj, invalid
from sandbox.cluster.store import Entry, Store, encode
from sandbox.cluster.validation import check_metadata
from sandbox.cluster.writes import (
    SYSTEM_METADATA,
    as_answer,
    check_no_new_finalizers,
    essence,
    selectable_fields,
    with_part,
)

Admission = Callable[[Obj, Obj | None], Obj]
"""A webhook: (new object, old one or None) to the object to store; raises ApiError to refuse."""

_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")


@dataclass(frozen=True, slots=True)
class Ids:
    """Where time and randomness come from."""

    now: Callable[[], datetime]
    uid: Callable[[], str]
    suffix: Callable[[], str]
    """Five characters for generateName."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a DeleteOptions asks for."""

    uid: str | None = None
    version: str | None = None
    finalizer: str | None = None
    """`foregroundDeletion` or `orphan`: left for a garbage collector, which only the played KServe stands in for."""


@dataclass(slots=True)
class Cluster:
    """All objects, and the rules under which they change."""

    store: Store
    ids: Ids
    kinds: dict[str, Kind] = field(default_factory=dict)
    admission: dict[str, Admission] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind in BUILT_IN:
            self.serve(kind)

    def serve(self, kind: Kind) -> None:
        """Serve `kind` from now on, or its changed definition."""
        if kind.resource not in self.kinds:
            self.store.open(kind.resource)
        self.kinds[kind.resource] = kind

    def establish(self, name: str) -> None:
        """Serve the kind of a definition, and say so in its status; nothing happens when it is gone again."""
        entry = self.store.get(CRDS, f"/{name}")
        if entry is None or entry.deleting:
            return
        crd = entry.decode()
        self.serve(kind_of_definition(crd))
        condition = {"status": "True", "lastTransitionTime": self.stamp()}
        conditions = [
            condition | {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found"},
            condition | {"type": "Established", "reason": "InitialNamesAccepted", "message": "accepted"},
        ]
        stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
        crd["status"] = {"conditions": conditions, "acceptedNames": crd["spec"]["names"], "storedVersions": stored}
        self._put(self.kinds[CRDS], crd)

    def stamp(self) -> str:
        """Return the present time as metadata has it: UTC, whole seconds."""
        return self.ids.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, kind: Kind, namespace: str, body: Obj) -> Entry:
        """Create an object; raises ApiError 404, 403, 405, 409, 422 as the real server does."""
        self._check_place(kind, namespace)
        obj = dict(body)
        metadata = obj["metadata"] = self._new_metadata(kind, namespace, body.get("metadata") or {})
        obj["apiVersion"], obj["kind"] = kind.api_version(kind.stored), kind.kind
        if kind.status:
            obj.pop("status", None)
        builtin.admit(kind, obj)
        if kind.resource in self.admission:
            obj = self.admission[kind.resource](obj, None)
        check_metadata(kind, metadata)
        existing = self.store.get(kind.resource, f"{namespace}/{metadata['name']}")
        if existing is not None:
            raise status.already_exists(kind.plural, kind.group, metadata["name"], deleting=existing.deleting)
        return self._put(kind, obj)

    def update(self, kind: Kind, current: Entry, wanted: Obj, *, part: str = "", patched: bool = False) -> Entry:
        """Replace an object, or with `part="status"` its status; returns `current` itself when nothing changes.

        `patched` says that `wanted` came from a patch: then resourceVersion may be missing, and a foreign uid is 422.
        """
        old = current.decode()
        self._check_identity(kind, current, wanted.get("metadata") or {}, patched=patched)
        obj = with_part(kind, old, wanted, part)
        metadata = obj["metadata"]
        if not part:
            if not current.deleting:
                builtin.admit(kind, obj)
                if kind.resource in self.admission:
                    obj = self.admission[kind.resource](obj, old)
            check_metadata(kind, metadata)
        if current.deleting:
            check_no_new_finalizers(kind, old, obj)
            if not metadata.get("finalizers"):
                self._remove(kind, current)
                return as_answer(current, obj)
        if kind.custom and essence(obj) != essence(old):
            metadata["generation"] = old["metadata"]["generation"] + 1
        return current if encode(obj) == current.raw else self._put(kind, obj)

    def delete(self, kind: Kind, current: Entry, deletion: Deletion | None = None) -> Entry | None:
        """Delete an object; returns None when it is gone, or its state when finalizers hold it."""
        deletion = deletion or Deletion()
        self._check_preconditions(kind, current, deletion)
        if kind.resource == NAMESPACES:
            return self._delete_namespace(kind, current)
        if kind.resource == CRDS:
            return self._delete_definition(kind, current)
        obj = current.decode()
        finalizers = obj["metadata"].get("finalizers") or []
        if current.deleting:
            return current
        if deletion.finalizer and deletion.finalizer not in finalizers:
            finalizers = [*finalizers, deletion.finalizer]
            obj["metadata"]["finalizers"] = finalizers
        if not finalizers:
            self._remove(kind, current)
            return None
        return self._mark_deleted(kind, obj)

    def restore(self, kind: Kind, obj: Obj, version: int) -> Entry:
        """Write an object as it is, uid included, under `version` if that is still free; the rules do not apply."""
        return self.store.put(kind.resource, obj, fields=selectable_fields(kind, obj), version=version)

    def vanish(self, kind: Kind, key: str, version: int) -> Entry:
        """Remove an object as it is, under `version` if that is still free; the rules do not apply."""
        return self.store.remove(kind.resource, key, version=version)

    def _put(self, kind: Kind, obj: Obj) -> Entry:
        return self.store.put(kind.resource, obj, fields=selectable_fields(kind, obj))

    def _check_place(self, kind: Kind, namespace: str) -> None:
        if kind.terminating:
            raise status.method_not_allowed("create not allowed while custom resource definition is terminating")
        if not kind.namespaced:
            return
        home = self.store.get(NAMESPACES, f"/{namespace}")
        if home is None:
            raise status.not_found(NAMESPACES, "", namespace)
        if home.deleting:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status.forbidden(kind.plural, kind.group, "", why)

    def _new_metadata(self, kind: Kind, namespace: str, given: Obj) -> Obj:
        metadata = {
            key: value for key, value in given.items() if key not in {*SYSTEM_METADATA, "managedFields", "selfLink"}
        }
        if given.get("namespace", namespace) != namespace:
            raise status.bad_request("the namespace of the provided object does not match the request")
        if given.get("resourceVersion"):
            raise status.internal("resourceVersion should not be set on objects to be created")
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                cause = ("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
                raise invalid(kind.kind, kind.group, "", cause)
            metadata["name"] = metadata["generateName"] + self.ids.suffix()
        if kind.namespaced:
            metadata["namespace"] = namespace
        if kind.custom:
            metadata["generation"] = 1
        return metadata | {"uid": self.ids.uid(), "creationTimestamp": self.stamp()}

    def _check_identity(self, kind: Kind, current: Entry, metadata: Obj, *, patched: bool) -> None:
        if metadata.get("name", current.name) != current.name:
            raise status.bad_request("the name of the object does not match the name on the URL")
        if metadata.get("namespace", current.namespace) != current.namespace:
            raise status.bad_request("the namespace of the object does not match the namespace on the URL")
        version = metadata.get("resourceVersion")
        if not version and not patched and not kind.unconditional_update:
            cause = (
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0: must be specified for an update",
            )
            raise invalid(kind.kind, kind.group, current.name, cause)
        uid = metadata.get("uid") or current.uid
        if uid != current.uid and patched:
            cause = ("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable')
            raise invalid(kind.kind, kind.group, current.name, cause)
        if uid != current.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
            raise status.conflict(kind.plural, kind.group, current.name, why)
        if version and version != str(current.version):
            raise status.conflict(kind.plural, kind.group, current.name, status.MODIFIED)

    def _check_preconditions(self, kind: Kind, current: Entry, deletion: Deletion) -> None:
        for name, asked, real in (
            ("UID", deletion.uid, current.uid),
            ("ResourceVersion", deletion.version, str(current.version)),
        ):
            if asked is not None and asked != real:
                why = f"Precondition failed: {name} in precondition: {asked}, {name} in object meta: {real}"
                raise status.conflict(kind.plural, kind.group, current.name, why)

    def _mark_deleted(self, kind: Kind, obj: Obj) -> Entry:
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = self.stamp()
        metadata["deletionGracePeriodSeconds"] = 0
        if kind.custom:
            metadata["generation"] += 1
        return self._put(kind, obj)

    def _remove(self, kind: Kind, current: Entry) -> None:
        self.store.remove(kind.resource, current.key)
        self._finish_namespace(current.namespace)
        self._finish_definition(kind)

    def _delete_namespace(self, kind: Kind, current: Entry) -> Entry | None:
        if current.name in _PROTECTED_NAMESPACES:
            raise status.forbidden(kind.plural, "", current.name, "this namespace may not be deleted")
        if not current.deleting:
            obj = current.decode()
            obj["metadata"]["deletionTimestamp"] = self.stamp()
            obj["status"] = {"phase": "Terminating"}
            self._put(kind, obj)
        for other in list(self.kinds.values()):
            if other.namespaced:
                self._delete_all(other, current.name)
        self._finish_namespace(current.name)
        return self.store.get(kind.resource, current.key)

    def _delete_all(self, kind: Kind, namespace: str | None) -> None:
        for entry in list(self.store.entries(kind.resource)):
            if namespace in (None, entry.namespace):
                self.delete(kind, entry)

    def _finish_namespace(self, namespace: str) -> None:
        home = self.store.get(NAMESPACES, f"/{namespace}") if namespace else None
        if home is None or not home.deleting:
            return
        resources = [kind.resource for kind in self.kinds.values() if kind.namespaced]
        if not any(entry.namespace == namespace for name in resources for entry in self.store.entries(name)):
            self.store.remove(NAMESPACES, home.key)

    def _delete_definition(self, kind: Kind, current: Entry) -> Entry | None:
        defined = self.kinds.get(current.name)
        if not current.deleting:
            obj = current.decode()
            obj["metadata"]["deletionTimestamp"] = self.stamp()
            obj["metadata"]["finalizers"] = ["customresourcecleanup.apiextensions.k8s.io"]
            self._put(kind, obj)
            if defined:
                self.kinds[current.name] = kind_of_definition(obj)
        if defined:
            self._delete_all(defined, None)
            self._finish_definition(self.kinds.get(current.name))
        else:
            self.store.remove(CRDS, current.key)
        return self.store.get(CRDS, current.key)

    def _finish_definition(self, kind: Kind | None) -> None:
        current = self.kinds.get(kind.resource) if kind else None
        if current and current.terminating and not self.store.entries(current.resource):
            self.store.remove(CRDS, f"/{current.resource}")
            del self.kinds[current.resource]
            self.store.close(current.resource)
