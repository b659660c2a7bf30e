"""Small stand-ins for the consumer's ports. They keep a world (records, objects, dead letters), and count the calls."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from consumer.actions import CreateRecord, UpdateRecord
from consumer.delivery.work import Message
from consumer.discovery import asked_of
from consumer.environments import Environments, Place
from consumer.lookup import Lookup
from consumer.observation import LastEvent, Observation
from consumer.plan import PlanSettings
from consumer.reconcile import Registries
from consumer.records import Record
from shared.errors import ConflictError, PermanentError, TransientError, UnsettledError
from shared.objects import Kind, ObjectKey, ReducedObject


class Trouble:
    """Errors to come: `fail("create_record", error)` makes the next call of that name raise before it acts."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._before: dict[str, list[Exception]] = {}
        self._after: dict[str, list[Exception]] = {}

    def fail(self, method: str, *errors: Exception) -> None:
        self._before.setdefault(method, []).extend(errors)

    def lose_answer(self, method: str, error: Exception) -> None:
        """Let the next call have its effect and fail all the same."""
        self._after.setdefault(method, []).append(error)

    @property
    def pending(self) -> int:
        """How many of the errors have not been raised yet."""
        return sum(len(errors) for errors in (*self._before.values(), *self._after.values()))

    @contextmanager
    def call(self, method: str) -> Iterator[None]:
        self.calls[method] += 1
        if self._before.get(method):
            raise self._before[method].pop(0)
        yield
        if self._after.get(method):
            raise self._after[method].pop(0)


class FakeRegistry(Trouble):
    """Implements the port `Registry`: keeps environments and records, refuses doubles."""

    READS = ("find_environment", "find_record", "find_record_by_name", "model_exists", "model_of_version")
    WRITES = ("create_environment", "create_record", "update_record")

    def __init__(self, models: tuple[str, ...] = ("1", "2"), versions: dict[str, str] | None = None) -> None:
        super().__init__()
        self.models = set(models)
        self.versions = {"11": "1", "12": "1", "21": "2"} if versions is None else versions
        self.environments: dict[str, str] = {}
        self.records: dict[str, Record] = {}

    @property
    def reads(self) -> int:
        return sum(self.calls[name] for name in self.READS)

    @property
    def writes(self) -> int:
        return sum(self.calls[name] for name in self.WRITES)

    @property
    def only(self) -> Record:
        (record,) = self.records.values()
        return record

    def put(self, record: Record, environment: str = "team-a") -> None:
        self.environments.setdefault(environment, record.environment_id)
        self.records[record.id] = record

    async def find_environment(self, name: str) -> str | None:
        with self.call("find_environment"):
            return self.environments.get(name)

    async def create_environment(self, name: str) -> str:
        with self.call("create_environment"):
            if name in self.environments:
                raise ConflictError(f"serving environment {name} exists")
            self.environments[name] = str(len(self.environments) + 3)
            return self.environments[name]

    async def find_record(self, external_id: str) -> Record | None:
        with self.call("find_record"):
            return next((each for each in self.records.values() if each.external_id == external_id), None)

    async def find_record_by_name(self, name: str, environment_id: str) -> Record | None:
        with self.call("find_record_by_name"):
            wanted = (name, environment_id)
            return next((r for r in self.records.values() if (r.name, r.environment_id) == wanted), None)

    async def all_records(self) -> AsyncGenerator[Record, None]:
        with self.call("all_records"):
            for record in list(self.records.values()):
                yield record

    async def create_record(self, action: CreateRecord, environment_id: str) -> Record:
        with self.call("create_record"):
            for each in self.records.values():
                if each.external_id == action.external_id or (each.name, each.environment_id) == (
                    action.name,
                    environment_id,
                ):
                    raise ConflictError("name or externalId is taken")
            record = Record(
                id=str(len(self.records) + 100),
                name=action.name,
                external_id=action.external_id,
                environment_id=environment_id,
                model_id=action.model_id,
                version_id=action.version_id,
                runtime=action.runtime,
                deployed=action.deployed,
                properties=action.properties,
            )
            self.records[record.id] = record
            return record

    async def update_record(self, action: UpdateRecord) -> Record:
        with self.call("update_record"):
            before = self.records.get(action.id)
            if before is None:
                raise TransientError(f"404 for record {action.id}")
            self.records[action.id] = replace(
                before,
                deployed=action.deployed,
                properties=action.properties,
                external_id=action.external_id or before.external_id,
                version_id=action.version_id or before.version_id,
                runtime=action.runtime or before.runtime,
            )
            return self.records[action.id]

    async def model_exists(self, model_id: str) -> bool:
        with self.call("model_exists"):
            return model_id in self.models

    async def model_of_version(self, version_id: str) -> str | None:
        with self.call("model_of_version"):
            return self.versions.get(version_id)


class FakeRegistries:
    """What a reconciler asks for registries: each object's is the one that its label `name` says, else the first."""

    def __init__(self, settings: PlanSettings, **registries: FakeRegistry) -> None:
        self._prefix = settings.prefix
        self.lookups = {
            name: Lookup(Place(name, registry, Environments(registry)), settings, lambda: 0.0)
            for name, registry in registries.items()
        }
        self.refused: set[str] = set()

    async def choose(self, seen: Observation) -> Lookup:
        name = asked_of(seen.obj, self._prefix).name or next(iter(self.lookups))
        if name in self.refused:
            raise PermanentError(f"registry {name} is not allowed")
        if name not in self.lookups:
            raise UnsettledError(f"there is no registry {name}")
        return self.lookups[name]

    def named(self, name: str) -> Lookup:
        return self.lookups[name]

    async def everywhere(self) -> tuple[Lookup, ...]:
        return tuple(self.lookups.values())

    async def find(self, name: str) -> Lookup | None:
        return None if name in self.refused else self.lookups.get(name)


class FakeKubernetes(Trouble):
    """Implements the port `Kubernetes`: keeps objects as the API server would send them, applies JSON patches."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[ObjectKey, Any] = {}

    def put(self, obj: ReducedObject) -> None:
        kind = Kind.LLMISVC if obj.kind == Kind.LLMISVC.kubernetes_kind else Kind.ISVC
        raw = msgspec.json.decode(msgspec.json.encode(obj))
        raw["spec"] = {name: part for name, part in raw["spec"].items() if part is not None}
        if raw["status"]["modelStatus"]["copies"] is None:
            del raw["status"]["modelStatus"]["copies"]
        self.objects[ObjectKey(kind, obj.metadata.namespace, obj.metadata.name)] = raw

    def labels(self, key: ObjectKey) -> dict[str, str]:
        return self.objects[key]["metadata"]["labels"]

    async def get(self, key: ObjectKey) -> Any | None:
        with self.call("get"):
            return self.objects.get(key)

    async def patch(self, key: ObjectKey, operations: list[dict[str, Any]]) -> None:
        with self.call("patch"):
            if key not in self.objects:
                raise ConflictError(f"{key} is gone")
            metadata = self.objects[key]["metadata"]
            for operation in operations:
                parts = operation["path"].removeprefix("/metadata/").split("/")
                if operation["op"] == "test":
                    if metadata[parts[0]] != operation["value"]:
                        raise ConflictError(f"test of {operation['path']} failed")
                elif len(parts) == 1:
                    metadata[parts[0]] = operation["value"]
                else:
                    metadata[parts[0]][parts[1].replace("~1", "/")] = operation["value"]
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)


class FakeEvents:
    """Implements the port `LastEvents`. `sequence` is the place of all of them."""

    def __init__(self) -> None:
        self.by_key: dict[ObjectKey, Observation] = {}
        self.sequence = 0

    async def last(self, key: ObjectKey) -> LastEvent | None:
        seen = self.by_key.get(key)
        return LastEvent(seen, self.sequence) if seen is not None else None


class FakeDeadLetters(Trouble):
    """Implements the port `DeadLetters`."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[ObjectKey, tuple[str, dict[str, str], bytes]] = {}

    async def bury(self, key: ObjectKey, headers: dict[str, str], body: bytes, reason: str) -> None:
        with self.call("bury"):
            self.entries[key] = (reason, headers, body)

    def holds(self, key: ObjectKey) -> bool:
        return key in self.entries

    async def clear(self, key: ObjectKey) -> None:
        with self.call("clear"):
            self.entries.pop(key, None)


class FakeMessage(Trouble):
    """Implements `Message`; `answers` are what the broker was told, in order."""

    def __init__(
        self,
        sequence: int = 1,
        *,
        subject: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        num_delivered: int = 1,
    ) -> None:
        super().__init__()
        self.sequence = sequence
        self.subject = subject
        self.headers = headers or {}
        self.body = body
        self.num_delivered = num_delivered
        self.provenance = {"isvc-seq": str(sequence)}
        self.answers: list[str] = []

    async def ack(self) -> None:
        with self.call("ack"):
            self.answers.append("ack")

    async def in_progress(self) -> None:
        with self.call("in_progress"):
            self.answers.append("in progress")

    async def terminate(self, reason: str) -> None:
        with self.call("terminate"):
            self.answers.append(f"terminate: {reason}")


_: type[Message] = FakeMessage
__: type[Registries] = FakeRegistries
