"""A pipeline whose consumer sweeps once a second, and a world that differs."""

from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from sandbox.world import NAME
from tests.cluster.processes import Guard
from tests.e2e.pipeline import STANDARD, STREAMS, Pipeline, isvc
from tests.eventually import eventually

SENTINELS = 2  # objects of `Pipeline.settled`, one of each kind


def sweeping(directory: Path, guard: Guard, **environ: str) -> Pipeline:
    return Pipeline(directory, guard, environ={"SWEEP_INTERVAL_S": "1", **environ})


def swept(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return what the consumer has logged of each sweep."""
    return [entry for entry in pipeline.consumer.entries() if entry["message"] == "swept"]


async def sweeps(pipeline: Pipeline, count: int = 2) -> dict[str, Any]:
    """Wait for so many more sweeps; return what is logged of the last one. One may have begun before."""
    wanted = len(swept(pipeline)) + count
    await eventually(lambda: len(swept(pipeline)) >= wanted, f"{count} more sweeps", 30)
    return swept(pipeline)[-1]


async def edit(pipeline: Pipeline, records: list[dict[str, Any]], **changes: Any) -> None:
    """Change records as a person would, by the registry's own interface."""
    async with httpx.AsyncClient() as person:
        for record in records:
            url = f"{pipeline.registry.url}/api/model_registry/v1alpha3/inference_services/{record['id']}"
            assert (await person.patch(url, json=changes)).status_code == 200


async def deployed(pipeline: Pipeline, count: int, namespace: str = "team-a") -> list[str]:
    """Create objects and wait until each is recorded and labelled; return their names."""
    names = [f"{namespace}/iris-{number:03}" for number in range(count)]
    for name in names:
        pipeline.cluster.create(isvc(name, model="1", annotations=STANDARD))
    await eventually(lambda: all(pipeline.id_label(name) for name in names), f"{count} records", 30)
    await pipeline.settled()
    return names


def deleted(pipeline: Pipeline, *names: str) -> None:
    for name in names:
        pipeline.cluster.delete("InferenceService", *name.split("/"))


def undeployed(pipeline: Pipeline) -> list[dict[str, Any]]:
    return [record for record in pipeline.records() if record["desiredState"] == "UNDEPLOYED"]


def states(pipeline: Pipeline) -> Counter[str]:
    return Counter(record["desiredState"] for record in pipeline.records())


async def looks(pipeline: Pipeline) -> int:
    """Return how many looks are in the stream."""
    info = await pipeline.client.jetstream().stream_info(STREAMS.events, subjects_filter=f"isvc.{NAME}.look.>")
    return sum((info.state.subjects or {}).values())
