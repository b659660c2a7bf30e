"""What a cluster is asked to do so that it shows what the events of a capture say. Pure; `kube.py` does it.

The objects are the replay's own: in namespaces of its guise, with a mark that names it, under whatever uid the server
gives. The mark is an annotation, and stands there from the first write on: it never changes, so it rolls no pod.
"""

import hashlib
from typing import Any, Final

import msgspec

from consumer.freshness import Freshness, Order, compare
from consumer.observation import freshness_of
from replay.capture import Captured
from replay.target.choice import Guise, body_of
from shared.errors import BadEventError
from shared.events import EventType
from shared.objects import ObjectKey

MARK: Final = "isvc-sync/replay"
_GROUP: Final = "serving.kserve.io"
_NAME_MAX: Final = 63  # of a namespace


class Place(msgspec.Struct, frozen=True):
    """Where an object stands in the API; `namespace` is the replay's."""

    version: str
    key: ObjectKey

    @property
    def api_version(self) -> str:
        return f"{_GROUP}/{self.version}"

    @property
    def collection(self) -> str:
        return f"/apis/{self.api_version}/namespaces/{self.key.namespace}/{self.key.kind.plural}"

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.key.name}"


class Show(msgspec.Struct, frozen=True):
    """Have the object there, and have it say `body`: labels, annotations, spec and status."""

    place: Place
    body: dict[str, Any]


class Remove(msgspec.Struct, frozen=True):
    place: Place


Operation = Show | Remove


class Patches(msgspec.Struct, frozen=True):
    """Merge patches (RFC 7386) from one state to another, {} where nothing differs. `status` is a subresource's."""

    main: dict[str, Any]
    status: dict[str, Any]


class Showing:
    """Says for each event what is to be done, given those before.

    Repetitions, and what is older than what was shown of the same object, ask for nothing.
    """

    def __init__(self, guise: Guise) -> None:
        self._guise = guise
        self._newest: dict[str, tuple[Freshness, str]] = {}  # by captured uid: the newest state, and its digest
        self._shown: dict[ObjectKey, tuple[str, Place]] = {}  # captured uid
        self._gone: set[str] = set()

    def operations(self, captured: Captured) -> tuple[Operation, ...]:
        """Return what an event asks for. Raises BadEventError where its body is no object of ours."""
        event, freshness = captured.event, freshness_of(captured.event, captured.obj)
        place, body = place_of(captured, self._guise), body_of(captured)
        if event.uid in self._gone or not self._is_news(event.uid, freshness, event.digest):
            return ()
        self._newest[event.uid] = freshness, event.digest
        uid, there = self._shown.get(event.key, ("", place))
        if event.type is EventType.DELETED:
            self._gone.add(event.uid)
            if uid != event.uid:
                return ()  # it was never shown, or another one has taken its name
            del self._shown[event.key]
            return (Remove(there),)
        show = Show(place, shown(body, self._guise))
        self._shown[event.key] = event.uid, place
        if uid in {"", event.uid}:
            return (show,)
        self._gone.add(uid)  # created anew, and the capture does not tell of the end before
        return (Remove(there), show)

    def _is_news(self, uid: str, freshness: Freshness, digest: str) -> bool:
        if uid not in self._newest:
            return True
        before, digest_before = self._newest[uid]
        order = compare(freshness, before)
        return order is Order.NEWER or (order is Order.SAME and digest != digest_before)


def place_of(captured: Captured, guise: Guise) -> Place:
    """Return where the event's object stands in the replay. Raises BadEventError for what is not of KServe's group."""
    key = captured.event.key
    said = str(body_of(captured).get("apiVersion", ""))
    group, _, version = said.partition("/")
    if group != _GROUP or not (version.isascii() and version.isalnum()):
        raise BadEventError(f"the event of {key} has the apiVersion {said[:80]!r}, and not one of {_GROUP}")
    if not _is_name(key.name) or not _is_name(key.namespace):
        raise BadEventError(f"the event of {str(key)[:200]} is about a name that no object can have")
    return Place(version, ObjectKey(key.kind, namespace_of(key.namespace, guise), key.name))


def namespace_of(namespace: str, guise: Guise) -> str:
    """Return the replay's namespace for a captured one: the same one in each replay of that name."""
    own = f"{guise.prefix}-{namespace}"
    if len(own) <= _NAME_MAX:
        return own
    digest = hashlib.sha256(own.encode()).hexdigest()[:8]
    return f"{own[: _NAME_MAX - len(digest) - 1].rstrip('-')}-{digest}"


def shown(body: dict[str, Any], guise: Guise) -> dict[str, Any]:
    """Return what an object should say: what the reduced form has, and the mark."""
    metadata = body["metadata"]
    return {
        "metadata": {
            "labels": metadata.get("labels") or {},
            "annotations": (metadata.get("annotations") or {}) | {MARK: guise.name},
        },
        "spec": body.get("spec") or {},
        "status": body.get("status") or {},
    }


def created(place: Place, body: dict[str, Any]) -> dict[str, Any]:
    """Return the object to create; its status is for a request of its own."""
    return {
        "apiVersion": place.api_version,
        "kind": place.key.kind.kubernetes_kind,
        "metadata": {"name": place.key.name, "namespace": place.key.namespace} | body["metadata"],
        "spec": body["spec"],
    }


def held_of(live: dict[str, Any]) -> dict[str, Any]:
    """Return what an object says that the server has, in the form of `shown`."""
    metadata = live["metadata"]
    kept = {name: metadata.get(name) or {} for name in ("labels", "annotations")}
    return {"metadata": kept, "spec": live.get("spec") or {}, "status": live.get("status") or {}}


def patches(before: dict[str, Any], after: dict[str, Any]) -> Patches:
    """Return the patches from what an object says to what it should say; what others wrote beside stays."""
    changes = merge_patch(before, after)
    status = changes.pop("status", None)
    return Patches(changes, {} if status is None else {"status": status})


def is_ours(live: dict[str, Any], guise: Guise) -> bool:
    """Whether an object or a namespace was made by a replay of that name."""
    annotations = live.get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(MARK) == guise.name)


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one map to another."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif name not in before or old != value:
            patch[name] = value
    return patch


def _is_name(text: str) -> bool:
    """Whether it can be part of a path as it is; what else a name must be, the server says."""
    return (
        bool(text)
        and text not in {".", ".."}
        and all(each.isascii() and (each.isalnum() or each in "-.") for each in text)
    )
