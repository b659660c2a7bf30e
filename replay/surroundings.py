"""The world around the consumer's core when a capture is decided again: cluster, stream, registries. Pure.

Nothing here acts. The cluster is what the last event of each object showed; what the core writes to it is kept until
the capture itself shows what became of it (`_Id`).
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from consumer.discovery import DiscoverySettings, Located, Refused, Service, asked_of, registry_named, resolve
from consumer.environments import Environments, Place
from consumer.freshness import Order, compare
from consumer.lookup import Lookup
from consumer.observation import LastEvent, Observation, want
from consumer.plan import PlanSettings
from consumer.ports import Registry
from consumer.writeback import Target, WriteBackForm
from replay.capture import ONLY_REGISTRY, Captured, Deciding, Header
from shared.errors import ConflictError, PermanentError, TransientError
from shared.events import EventType
from shared.objects import ObjectKey


class Shown(msgspec.Struct):
    """The last event of an object. `gone`: it told the deletion. `body`: the reduced object as JSON."""

    seen: Observation
    body: bytes
    sequence: int
    gone: bool


class _Id(msgspec.Struct):
    """Our id on one object, as the capture shows it and as it would be.

    `shown`: as the last event showed it. `written`: what was written since, until an event shows another value than
    `shown`. `ours`: what the ids in the capture are called here: the recorded consumer's registry counted otherwise.
    """

    shown: str | None
    written: str | None = None
    ours: dict[str, str] = {}


class Echo(Enum):
    """When an id that appears on an object is taken for the one that the recorded consumer wrote: the echo of ours.

    Otherwise it is somebody else's.
    """

    NEVER = "there was no such consumer"
    AFTER_A_WRITE = "when we would have written one here"
    ALWAYS = "also when we would not have: it knew more than the capture"

    @classmethod
    def in_capture(cls, header: Header) -> "Echo":
        if not header.consumed:
            return cls.NEVER
        return cls.AFTER_A_WRITE if header.source == "watch-file" else cls.ALWAYS


class Cluster:
    """The ports `Kubernetes`, `LastEvents` and `DeadLetters`."""

    def __init__(self, target: Target, echo: Echo) -> None:
        self._target = target
        self._echo = echo
        self._shown: dict[ObjectKey, Shown] = {}
        self._ids: dict[str, _Id] = {}
        self.dead: dict[ObjectKey, str] = {}

    def show(self, seen: Observation, line: Captured, record_id: str | None) -> Observation:
        """Take in what an event shows; return it with the id as it is called here.

        `record_id`: the id of the record that the object has by now, as far as is known.
        """
        seen = self._with_id(seen, self._id_now(seen, record_id))
        before, is_end = self._shown.get(seen.key), line.event.type is EventType.DELETED
        is_late = before is not None and (
            is_end if before.seen.uid != seen.uid else compare(seen.freshness, before.seen.freshness) is Order.OLDER
        )
        if not is_late:
            self._shown[seen.key] = Shown(seen, line.data, line.position.seq, is_end)
        return seen

    async def last(self, key: ObjectKey) -> LastEvent | None:
        shown = self._shown.get(key)
        return None if shown is None else LastEvent(shown.seen, shown.sequence)

    def last_shown(self, key: ObjectKey) -> Shown | None:
        return self._shown.get(key)

    async def get(self, key: ObjectKey) -> Any | None:
        shown = self._shown.get(key)
        if shown is None or shown.gone:
            return None
        raw = msgspec.json.decode(shown.body)
        metadata = raw["metadata"]
        metadata["labels"] = dict(shown.seen.obj.metadata.labels)
        metadata["annotations"] = dict(shown.seen.obj.metadata.annotations)
        if shown.seen.obj.metadata.has_annotations and not metadata["annotations"]:
            metadata["annotations"][""] = ""  # somebody's
        return raw

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        shown = self._shown.get(key)
        if shown is None or shown.gone:
            raise ConflictError(f"{key} is gone")
        metadata = shown.seen.obj.metadata
        present = {"/metadata/uid": metadata.uid, "/metadata/resourceVersion": metadata.resource_version}
        for operation in operations:
            if operation["op"] == "test" and present[operation["path"]] != operation["value"]:
                raise ConflictError(f"the test of {operation['path']} failed")
        value = operations[-1]["value"]
        written = value if isinstance(value, str) else str(value[self._target.key])
        self._ids[metadata.uid].written = written
        shown.seen = self._with_id(shown.seen, written)

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:  # noqa: ARG002 - as the port has it
        self.dead[key] = reason

    def holds(self, key: ObjectKey) -> bool:
        return key in self.dead

    async def clear(self, key: ObjectKey) -> None:
        self.dead.pop(key, None)

    def _id_now(self, seen: Observation, record_id: str | None) -> str | None:
        """Return the id that the object carries here, given the event's."""
        value = self._target.value_on(seen.obj)
        known = self._ids.get(seen.uid)
        if known is None:
            known = self._ids[seen.uid] = _Id(value)
            return value
        if value == known.shown:
            return known.written or self._called(known, value)  # it may not know of our write yet
        written, known.written, known.shown = known.written, None, value
        if value is not None and value not in known.ours:
            echoed = self._echoed(written, record_id)
            if echoed is not None and echoed not in known.ours.values():
                known.ours = {**known.ours, value: echoed}
        return self._called(known, value)

    def _echoed(self, written: str | None, record_id: str | None) -> str | None:
        match self._echo:
            case Echo.NEVER:
                return None
            case Echo.AFTER_A_WRITE:
                return written
            case Echo.ALWAYS:
                return written or record_id

    def _called(self, known: _Id, value: str | None) -> str | None:
        return None if value is None else known.ours.get(value, value)

    def _with_id(self, seen: Observation, value: str | None) -> Observation:
        if value == self._target.value_on(seen.obj):
            return seen
        metadata, form = seen.obj.metadata, self._target.form
        field = "labels" if form is WriteBackForm.LABEL else "annotations"
        others = {key: each for key, each in getattr(metadata, field).items() if key != self._target.key}
        values = others if value is None else {**others, self._target.key: value}
        has_annotations = metadata.has_annotations or (form is WriteBackForm.ANNOTATION and value is not None)
        changed = replace(metadata, **{field: values}, has_annotations=has_annotations)
        return replace(seen, obj=replace(seen.obj, metadata=changed))


class Assuming(Registry, Protocol):
    """A registry that may be told what exists; see `MemoryRegistry`."""

    @property
    def assuming(self) -> bool: ...
    def assume(self, version_id: str, model_id: str) -> None: ...


class Registries:
    """What `reconcile.py` asks for registries, by the labels and Services of the capture; else there is one.

    `opened` makes one of that name, `now` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        deciding: Deciding,
        settings: PlanSettings,
        opened: Callable[[str], Assuming],
        now: Callable[[], float],
    ) -> None:
        self._deciding = deciding
        self._settings = settings
        self._opened = opened
        self._now = now
        self._lookups: dict[str, Lookup] = {}

    async def choose(self, seen: Observation) -> Lookup:
        if self._deciding.discovery is None:
            return self._assuming(self.named(ONLY_REGISTRY), seen)
        discovery = self._deciding.discovery
        found = resolve(seen.key.namespace, asked_of(seen.obj, discovery.prefix), self._deciding.services, discovery)
        match found:
            case Located(name):
                return self._assuming(self.named(name), seen)
            case Refused(reason):
                raise PermanentError(reason)
            case _:
                raise TransientError(found.reason)

    def named(self, name: str) -> Lookup:
        lookup = self._lookups.get(name)
        if lookup is None:
            registry = self._opened(name)
            lookup = Lookup(Place(name, registry, Environments(registry)), self._settings, self._now)
            self._lookups[name] = lookup
        return lookup

    def _assuming(self, lookup: Lookup, seen: Observation) -> Lookup:
        """Let the registry know what the labels name; it takes that to exist where no facts tell."""
        registry = self._opened(lookup.place.name)
        if registry.assuming:
            wanted = want(seen, self._settings.prefix)
            if wanted.model is not None and wanted.version:
                registry.assume(wanted.version, wanted.model)
        return lookup

    async def find(self, name: str) -> Lookup | None:
        discovery: DiscoverySettings | None = self._deciding.discovery
        services: tuple[Service, ...] = self._deciding.services
        if discovery is not None and registry_named(name, services, discovery) is None:
            return None
        return self.named(name)
