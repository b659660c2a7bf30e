"""A Model Registry in memory, as far as the consumer uses one: the port `Registry` without a server. Pure.

`planning.py` decides against it. It says no where the real one does (a name or an externalId that is taken, an
environment or a record that is not there), and keeps what a PATCH leaves out. A test gives the same calls to it and to
the sandbox's registry.

A capture may know nothing of models and versions. Then those that labels name are taken to exist (`assuming`).
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final

from msgspec.structs import replace

from consumer.actions import CreateRecord, UpdateRecord
from consumer.records import Record
from replay.capture import Facts
from shared.errors import ConflictError, NotFoundError, PermanentError, TransientError
from shared.objects import is_registry_id

_FIRST_ID: Final = 1

OnWrite = Callable[[CreateRecord | UpdateRecord, Record], None]


def _ignore(_action: CreateRecord | UpdateRecord, _record: Record) -> None:
    pass


class MemoryRegistry:
    """One registry. `strict`: nothing exists but what `seed` was told; `on_write` is told what each write made."""

    def __init__(self, *, strict: bool = False, on_write: OnWrite = _ignore) -> None:
        self._strict = strict
        self._on_write = on_write
        self._models: set[str] = set()
        self._versions: dict[str, str] = {}
        self._told = False  # of models or versions, there or absent
        self._assumed: dict[str, str] = {}
        self._environments: dict[str, str] = {}
        self._records: dict[str, Record] = {}
        self._by_external_id: dict[str, str] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._last_id = _FIRST_ID - 1

    @property
    def assuming(self) -> bool:
        """Whether models and versions are taken to exist, because no facts tell of any."""
        return not self._strict and not self._told

    @property
    def assumed(self) -> dict[str, str]:
        """The versions that were taken to exist, each with its model."""
        return dict(self._assumed)

    def records(self) -> list[Record]:
        """Return every record, in the order of their creation."""
        return list(self._records.values())

    def environments(self) -> dict[str, str]:
        """Return the serving environments, name to id."""
        return dict(self._environments)

    def seed(self, facts: Facts) -> None:
        """Add what a registry held. Facts of one registry add up."""
        told = (facts.models, facts.versions, facts.absent_models, facts.absent_versions)
        self._told = self._told or any(told)
        self._models.update(facts.models)
        self._versions.update(facts.versions)
        self._models.difference_update(facts.absent_models)
        for version_id in facts.absent_versions:
            self._versions.pop(version_id, None)
        self._count(*facts.models, *facts.versions, *facts.environments.values(), *(each.id for each in facts.records))
        self._environments.update(facts.environments)
        for fact in facts.records:
            environment_id = self._environments.get(fact.environment) or self._new_environment(fact.environment)
            record = Record(
                id=fact.id,
                name=fact.name,
                external_id=fact.external_id,
                environment_id=environment_id,
                model_id=fact.model_id,
                version_id=fact.version_id,
                runtime=fact.runtime,
                deployed=fact.deployed,
                properties=fact.properties,
            )
            self._put(record)

    def assume(self, version_id: str, model_id: str) -> None:
        """Take a version to be one of that model, unless it was taken to be another's: it is one of one model."""
        self._assumed.setdefault(version_id, model_id)

    async def find_environment(self, name: str) -> str | None:
        return self._environments.get(name)

    async def create_environment(self, name: str) -> str:
        if name in self._environments:
            raise ConflictError(f"serving environment {name!r} exists")
        return self._new_environment(name)

    async def find_record(self, external_id: str) -> Record | None:
        return self._found(self._by_external_id.get(external_id))

    async def find_record_by_name(self, name: str, environment_id: str) -> Record | None:
        return self._found(self._by_name.get((environment_id, name)))

    async def all_records(self) -> AsyncGenerator[Record, None]:
        for record in self.records():
            yield record

    async def create_record(self, action: CreateRecord, environment_id: str) -> Record:
        if environment_id not in self._environments.values():
            raise NotFoundError(f"no serving environment found for id {environment_id}")
        if (environment_id, action.name) in self._by_name or action.external_id in self._by_external_id:
            raise ConflictError(f"name or externalId of {action.name!r} is taken")
        record = Record(
            id=self._new_id(),
            name=action.name,
            external_id=action.external_id,
            environment_id=environment_id,
            model_id=action.model_id,
            version_id=action.version_id,
            runtime=action.runtime,
            deployed=action.deployed,
            properties=action.properties,
        )
        self._put(record)
        self._on_write(action, record)
        return record

    async def update_record(self, action: UpdateRecord) -> Record:
        before = self._records.get(action.id)
        if before is None:
            raise TransientError(f"no InferenceService found for id {action.id}")
        external_id = action.external_id or before.external_id
        if self._by_external_id.get(external_id, before.id) != before.id:
            raise ConflictError(f"externalId {external_id!r} is taken")
        record = replace(
            before,
            external_id=external_id,
            version_id=action.version_id or before.version_id,
            runtime=action.runtime or before.runtime,
            deployed=action.deployed,
            properties=action.properties,
        )
        self._by_external_id.pop(before.external_id, None)
        self._put(record)
        self._on_write(action, record)
        return record

    async def model_exists(self, model_id: str) -> bool:
        _require_id(model_id)
        return self.assuming or model_id in self._models

    async def model_of_version(self, version_id: str) -> str | None:
        _require_id(version_id)
        return (self._assumed if self.assuming else self._versions).get(version_id)

    def _put(self, record: Record) -> None:
        self._records[record.id] = record
        self._by_name[record.environment_id, record.name] = record.id
        if record.external_id:
            self._by_external_id[record.external_id] = record.id

    def _found(self, record_id: str | None) -> Record | None:
        return None if record_id is None else self._records[record_id]

    def _new_environment(self, name: str) -> str:
        self._environments[name] = self._new_id()
        return self._environments[name]

    def _new_id(self) -> str:
        """Return the next id: like the real one's, above all that there were."""
        self._last_id += 1
        return str(self._last_id)

    def _count(self, *ids: str) -> None:
        self._last_id = max(self._last_id, *(int(each) for each in ids if is_registry_id(each)), 0)


def _require_id(text: str) -> None:
    if not is_registry_id(text):
        raise PermanentError(f"{text[:40]!r} is no id of the registry")
