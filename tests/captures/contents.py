"""What two registries say of the same objects, made comparable: by externalId, ids mapped, times by their shape."""

from collections.abc import Iterable
from typing import Any

import msgspec

from consumer.records import PROPERTY, Record
from replay.capture import Facts, RecordFact
from replay.registry import MemoryRegistry

_RIDE_ALONG = ("resourceVersion", "digest", "generation")  # which of several states a record was written from
_TIMES = ("deployedAt", "undeployedAt")


def of_registry(registry: MemoryRegistry) -> dict[str, Any]:
    names = {number: name for name, number in registry.environments().items()}
    return {record.external_id: _content(record, names[record.environment_id]) for record in registry.records()}


def of_facts(facts: Iterable[Facts]) -> dict[str, Any]:
    return {fact.external_id: _content(fact, fact.environment) for each in facts for fact in each.records}


def _content(record: Record | RecordFact, environment: str) -> dict[str, Any]:
    properties = {name: value["string_value"] for name, value in record.properties.items()}
    stamp = msgspec.json.decode(properties.pop(PROPERTY))
    for name in _RIDE_ALONG:
        del stamp[name]
    for name in _TIMES:
        stamp[name] = bool(stamp[name])
    stamp["history"] = [change["version"] for change in stamp["history"]]
    return {
        "name": record.name,
        "environment": environment,
        "model": record.model_id,
        "version": record.version_id,
        "runtime": record.runtime,
        "deployed": record.deployed,
        "properties": properties,
        "stamp": stamp,
    }
