"""What the tests of the defects share: objects, their records, and the trap doors to both, in one running pipeline.

All tests of a file share its pipeline: each has a namespace of its own, and leaves both servers as it found them.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.e2e.pipeline import ID, MODEL, STANDARD, Pipeline, isvc
from tests.eventually import eventually

ISVC, LLM = "InferenceService", "LLMInferenceService"


def create(pipeline: Pipeline, name: str, model: str | None = "1", version: str | None = None, **metadata: Any) -> str:
    """Create an object in Standard mode that was never ready, so that its id may be written; return its uid."""
    given = {"annotations": STANDARD} | metadata
    made = pipeline.cluster.create(isvc(name, model=model, version=version, **given))
    return str(made["metadata"]["uid"])


async def linked(pipeline: Pipeline, name: str, kind: str = ISVC) -> dict[str, Any]:
    """Wait until an object carries the id of its deployed record, the only one that is; return that record.

    It is the record of the model that the object is labelled with at this moment.
    """

    def record() -> dict[str, Any] | None:
        metadata = pipeline.object(name, kind)["metadata"]
        found = [each for each in pipeline.records(metadata["uid"]) if each["desiredState"] == "DEPLOYED"]
        is_said = [(each["id"], each["registeredModelId"]) for each in found]
        return found[0] if is_said == [(metadata["labels"].get(ID), metadata["labels"].get(MODEL))] else None

    found: dict[str, Any] = await eventually(record, f"{name} carries the id of its record")
    return found


async def recorded(pipeline: Pipeline, name: str, **metadata: Any) -> dict[str, Any]:
    """Create an object; wait until it is recorded and linked."""
    create(pipeline, name, **metadata)
    return await linked(pipeline, name)


def by_model(pipeline: Pipeline, uid: str) -> dict[str, str]:
    """Return the state of each record of an object, by the model that it is for."""
    return {record["registeredModelId"]: record["desiredState"] for record in pipeline.records(uid)}


async def has_state(pipeline: Pipeline, uid: str, state: str) -> None:
    await eventually(
        lambda: [each["desiredState"] for each in pipeline.records(uid)] == [state], f"the one record is {state}", 30.0
    )


def delete(pipeline: Pipeline, name: str, kind: str = ISVC) -> None:
    pipeline.cluster.delete(kind, *name.split("/"))


def is_gone(pipeline: Pipeline, name: str, kind: str = ISVC) -> bool:
    """Whether an object is gone at this moment: nothing held its deletion."""
    return pipeline.cluster.get(kind, *name.split("/")) is None


def set_status(pipeline: Pipeline, name: str, **status: Any) -> None:
    pipeline.cluster.patch(ISVC, tuple(name.split("/")), {"status": status}, part="status")


def annotate(pipeline: Pipeline, name: str, **annotations: str | None) -> None:
    pipeline.patch(name, {"metadata": {"annotations": annotations}})


def stamp(record: dict[str, Any]) -> dict[str, Any]:
    """Return the content of our property."""
    content: dict[str, Any] = json.loads(record["customProperties"]["isvc-sync"]["string_value"])
    return content


def url(record: dict[str, Any]) -> str | None:
    """Return the record's url, None where it has no such property."""
    value = record["customProperties"].get("url")
    return None if value is None else str(value["string_value"])


@asynccontextmanager
async def person(pipeline: Pipeline) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who uses the registry's own interface."""
    base_url = f"{pipeline.registry.url}/api/model_registry/v1alpha3"
    async with httpx.AsyncClient(base_url=base_url) as client:
        yield client


async def edit(pipeline: Pipeline, record: dict[str, Any], **changes: Any) -> None:
    async with person(pipeline) as client:
        assert (await client.patch(f"/inference_services/{record['id']}", json=changes)).status_code == 200
