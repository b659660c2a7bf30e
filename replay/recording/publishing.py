"""From what a watch shows to what a producer would have published: events without a broker. Pure.

The producer's own core decides (`producer/inventory.py`): what says nothing new is left out, digests, models and
synthetic events are as in the stream. Where the broker's inventory would be, there is what was published here before.
"""

from collections.abc import Iterable, Iterator

import msgspec

from producer.changes import Change
from producer.inventory import Inventory
from producer.items import Observed
from producer.passes import Epoch
from replay.capture import ONLY_REGISTRY, Captured, Facts, Position
from shared.events import Event, EventType
from shared.objects import Kind, ObjectKey, is_registry_id
from shared.reduce import REGISTRY_PREFIXES
from shared.subjects import Subjects


class Moment(msgspec.Struct, frozen=True):
    """When something was seen: as RFC 3339, and as a Unix second."""

    time: str
    now_s: int


class Publishing:
    """Publishes into a capture. `scope` is the one namespace that is watched, "" for all of them."""

    def __init__(self, subjects: Subjects, cluster_id: str) -> None:
        self._subjects = subjects
        self._cluster_id = cluster_id
        self._epoch = Epoch()
        self._inventories: dict[tuple[Kind, str], Inventory] = {}
        self._bodies: dict[ObjectKey, tuple[str, bytes]] = {}  # uid and last body: what a tombstone says
        self.seq = 0

    def begin_pass(self, kind: Kind, scope: str = "") -> None:
        """Begin a complete list of all objects of a kind."""
        self._inventory(kind, scope).begin_pass(frozenset({scope}) if scope else None)

    def see(self, found: Observed, at: Moment, *, live: bool, scope: str = "") -> Iterator[Captured]:
        """Yield the events for an object that exists; `live`: it has just changed, else it stood in a list."""
        inventory = self._inventory(found.key.kind, scope, at)
        return self._captured(inventory, inventory.observe(found, live=live, now_s=at.now_s), at)

    def gone(self, found: Observed, at: Moment, *, scope: str = "") -> Iterator[Captured]:
        """Yield the events for an object that was deleted."""
        inventory = self._inventory(found.key.kind, scope, at)
        return self._captured(inventory, inventory.remove(found, now_s=at.now_s), at)

    def end_pass(
        self, kind: Kind, version: str, at: Moment, *, doubtful: int = 0, scope: str = ""
    ) -> tuple[Iterator[Captured], bool]:
        """Return the events that follow from a complete list, and whether deletes are held until it is repeated."""
        inventory = self._inventory(kind, scope, at)
        outcome = inventory.end_pass(version, doubtful=doubtful, now_s=at.now_s)
        return self._captured(inventory, outcome.changes, at), outcome.held > 0

    def _inventory(self, kind: Kind, scope: str, at: Moment | None = None) -> Inventory:
        if at is not None and not self._epoch.value:
            self._epoch.known(at.now_s)
        if (kind, scope) not in self._inventories:
            self._inventories[kind, scope] = Inventory(self._epoch)
        return self._inventories[kind, scope]

    def _captured(self, inventory: Inventory, changes: Iterable[Change], at: Moment) -> Iterator[Captured]:
        for change in changes:
            self.seq += 1
            body = self._body(change)
            inventory.acknowledged(change.key, self.seq)
            position = Position(self.seq, self._subjects.event(change.key), at.time)
            yield Captured(_event(change, self._cluster_id, at.time), body, position, initial=_is_initial(change))

    def _body(self, change: Change) -> bytes:
        key = change.key
        if change.body is None:
            uid, last = self._bodies.get(key, ("", b""))
            return last if uid == change.uid else msgspec.json.encode(_known(change))
        body = msgspec.json.encode(change.body)
        if change.type is EventType.DELETED:
            self._bodies.pop(key, None)
        else:
            self._bodies[key] = (change.uid, body)
        return body


class Named:
    """The models and versions that labels name: what a registry must hold so that they mean something.

    A version belongs to the model beside which it stands first. Values that can be no id are left out.
    """

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._versions: set[str] = set()

    def new(self, captured: Captured) -> Facts | None:
        """Return what the object of this event names and none before it did; None for nothing."""
        models: list[str] = []
        versions: dict[str, str] = {}
        for model, version in _pairs(captured.obj.metadata.labels):
            if model not in self._models:
                self._models.add(model)
                models.append(model)
            if is_registry_id(version) and version not in self._versions:
                self._versions.add(version)
                versions[version] = model
        return Facts(registry=ONLY_REGISTRY, models=tuple(models), versions=versions) if models or versions else None


def _pairs(labels: dict[str, str]) -> Iterator[tuple[str, str]]:
    for prefix in REGISTRY_PREFIXES:
        model = labels.get(f"{prefix}registered-model-id", "")
        if is_registry_id(model):
            yield model, labels.get(f"{prefix}model-version-id", "")


def _is_initial(change: Change) -> bool:
    """Whether it says what was there before anything was published about that object."""
    return change.type is EventType.CREATED and change.corrects == 0


def _event(change: Change, cluster_id: str, time: str) -> Event:
    return Event(
        type=change.type,
        key=change.key,
        uid=change.uid,
        epoch=change.epoch,
        resource_version=change.resource_version,
        digest=change.digest,
        models=change.models,
        cluster_id=cluster_id,
        time=time,
        corrects=change.corrects,
    )


def _known(change: Change) -> dict[str, object]:
    """Return what is known of an object whose last state is not: who it was."""
    key = change.key
    identity = {"name": key.name, "namespace": key.namespace, "uid": change.uid}
    return {
        "kind": key.kind.kubernetes_kind,
        "metadata": {**identity, "resourceVersion": change.resource_version, "labels": {}, "annotations": {}},
        "spec": {},
        "status": {},
    }
