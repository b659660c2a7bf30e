"""Stories that need a consumer which acts: lived by the real producer and consumer, and taken down from the stream.

    outage           a registry without its database while objects are made, changed and deleted
    takeover         a consumer is killed, objects change meanwhile, another consumer takes its shards over
    gitops-fight     a tool removes the id each time it is written
    etcd-restore     the cluster's etcd is put back to a backup: resourceVersions count again
    two-registries   objects name their registry, and one moves to the other

Each ends with the facts of what the registries held then, so that a plan can be compared with what was lived.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import sandbox.registry
from consumer.discovery import DiscoverySettings
from replay.capture import FORMAT, ONLY_REGISTRY, Captured, Deciding, Facts, Header, Position, RecordFact
from replay.files import writing
from sandbox.registry import RegistryServer
from sandbox.world import NAME, Options
from shared import events
from tests.cluster.processes import Guard
from tests.e2e.pipeline import MODELS, PREFIX, STREAMS, Pipeline, isvc
from tests.eventually import eventually

VERSIONS = {"101": "1", "102": "1", "103": "1", "201": "2", "202": "2"}
URL = PREFIX + "url"

Story = Callable[[Pipeline, list[RegistryServer]], Awaitable[None]]


async def outage(pipeline: Pipeline, _: list[RegistryServer]) -> None:
    for name in ("stays", "changes", "ends"):
        pipeline.cluster.create(isvc(f"team-a/{name}", model="1", version="101"))
    await pipeline.settled()
    pipeline.registry.switch(database="stopped")
    pipeline.cluster.create(isvc("team-a/new", model="2", version="201"))
    pipeline.cluster.delete("InferenceService", "team-a", "ends")
    for version in ("102", "103"):
        pipeline.set_labels("team-a/changes", model_version_id=version)
        await asyncio.sleep(0.5)
    pipeline.registry.switch(database="well")
    await pipeline.settled()


async def takeover(pipeline: Pipeline, _: list[RegistryServer]) -> None:
    for name in ("stays", "changes", "ends"):
        pipeline.cluster.create(isvc(f"team-a/{name}", model="1", version="101"))
    await pipeline.settled()
    await pipeline.consumer.kill()
    pipeline.set_labels("team-a/changes", model_version_id="102")
    pipeline.cluster.create(isvc("team-a/new", model="2", version="201"))
    pipeline.cluster.delete("InferenceService", "team-a", "ends")
    successor = pipeline.another("consumer", "consumer-1", {"POD_NAME": "consumer-1"})
    try:
        await successor.start()
        await pipeline.settled(40.0)
        pipeline.set_labels("team-a/new", registered_model_id="1", model_version_id="103")
        await pipeline.settled()
    finally:
        await successor.close()


async def gitops_fight(pipeline: Pipeline, _: list[RegistryServer]) -> None:
    pipeline.cluster.create(isvc("team-a/owned", model="1", version="101"))
    for _number in range(3):
        await eventually(lambda: pipeline.id_label("team-a/owned") is not None, "the id is written", 20.0)
        await asyncio.sleep(0.4)
        pipeline.set_labels("team-a/owned", inference_service_id=None)
    await pipeline.settled()
    assert pipeline.id_label("team-a/owned") is None


async def etcd_restore(pipeline: Pipeline, _: list[RegistryServer]) -> None:
    for name in ("stays", "changes", "ends"):
        pipeline.cluster.create(isvc(f"team-a/{name}", model="1", version="101"))
    await pipeline.settled()
    store = pipeline.cluster.store
    resource = pipeline.cluster.kind("InferenceService").resource
    backup, version = dict(store._objects[resource]), store.version
    pipeline.set_labels("team-a/changes", model_version_id="102")
    pipeline.cluster.create(isvc("team-a/never-was", model="2", version="201"))
    pipeline.cluster.delete("InferenceService", "team-a", "ends")
    await pipeline.settled()
    store._objects[resource], store.version = backup, version
    store._sorted.clear()
    for each in list(store._logs):
        store.open(each)
    await asyncio.sleep(2.0)
    pipeline.set_labels("team-a/stays", model_version_id="103")
    await pipeline.settled(40.0)


async def two_registries(pipeline: Pipeline, registries: list[RegistryServer]) -> None:
    other = {URL: registries[1].url}
    pipeline.cluster.create(isvc("team-a/here", model="1", version="101"))
    pipeline.cluster.create(isvc("team-a/there", model="1", version="102", annotations=other))
    pipeline.cluster.create(isvc("team-a/moves", model="2", version="201"))
    pipeline.cluster.create(isvc("team-a/evil", model="1", annotations={URL: "http://elsewhere.example.com"}))
    await pipeline.settled()
    pipeline.patch("team-a/moves", {"metadata": {"annotations": other}})
    await pipeline.settled()
    pipeline.cluster.delete("InferenceService", "team-a", "there")
    await pipeline.settled()


STORIES: Mapping[str, Story] = {
    "outage": outage,
    "takeover": takeover,
    "gitops-fight": gitops_fight,
    "etcd-restore": etcd_restore,
    "two-registries": two_registries,
}


async def record_all(directory: Path) -> None:
    guard = Guard()
    try:
        for name in STORIES:
            with TemporaryDirectory() as scratch:
                await record(name, directory / f"{name}.jsonl", Path(scratch), guard)
    finally:
        guard.close()


async def record(name: str, path: Path, scratch: Path, guard: Guard) -> None:
    """Live a story and write its capture."""
    async with _lived(name, scratch, guard) as (pipeline, registries):
        discovery = _discovery(registries) if len(registries) > 1 else None
        messages = [each for each in await pipeline.messages(STREAMS.events) if ".evt." in each.subject]
        lines = [
            Captured(events.decode(each.headers), each.body, Position(each.sequence, each.subject)) for each in messages
        ]
        header = Header(
            capture=FORMAT,
            created=lines[-1].event.time,
            tool="golden",
            cluster=NAME,
            cluster_id=lines[0].event.cluster_id,
            source="stream",
            stream=STREAMS.events,
            first_seq=lines[0].position.seq,
            deciding=Deciding(discovery=discovery),
        )
        names = [each.url for each in registries] if discovery is not None else [ONLY_REGISTRY]
        models = tuple(str(number) for number in range(1, MODELS + 1))
        with writing(path, header) as writer:
            for each in names:
                writer.write(Facts(registry=each, models=models, versions=VERSIONS))
            for line in lines:
                if line.event.key.namespace != "sentinel":
                    writer.write(line)
            for each, registry in zip(names, registries, strict=True):
                writer.write(held(registry, each))


@asynccontextmanager
async def _lived(name: str, scratch: Path, guard: Guard) -> AsyncIterator[tuple[Pipeline, list[RegistryServer]]]:
    async with contextlib.AsyncExitStack() as stack:
        others = []
        environ = {}
        if name == "two-registries":
            others.append(await stack.enter_async_context(sandbox.registry.serve()))
            environ["REGISTRY_ALLOWED_HOSTS"] = others[0].url.removeprefix("http://")
        options = Options(kserve_pace=0.2)
        pipeline = await stack.enter_async_context(Pipeline(scratch / "pipeline", guard, options, environ))
        registries = [pipeline.registry, *others]
        pipeline.seed(VERSIONS)
        for other in others:
            models = [{"id": str(number), "name": f"model-{number}"} for number in range(1, MODELS + 1)]
            versions = [{"id": v, "name": f"v{v}", "registeredModelId": model} for v, model in VERSIONS.items()]
            other.seed(registered_models=models, model_versions=versions)
        await STORIES[name](pipeline, registries)
        yield pipeline, registries


def _discovery(registries: list[RegistryServer]) -> DiscoverySettings:
    hosts = tuple(each.url.removeprefix("http://") for each in registries[1:])
    return DiscoverySettings(prefix=PREFIX, url=registries[0].url, allowed_hosts=hosts)


def held(registry: RegistryServer, name: str) -> Facts:
    """Return what a registry holds now."""
    environments = {each["name"]: each["id"] for each in registry.records("serving_environments")}
    by_id = {each: name for name, each in environments.items()}
    return Facts(
        at="end",
        registry=name,
        environments=environments,
        records=tuple(_fact(each, by_id) for each in registry.records("inference_services")),
    )


def _fact(record: dict[str, Any], environments: Mapping[str, str]) -> RecordFact:
    return RecordFact(
        id=record["id"],
        name=record["name"],
        external_id=record.get("externalId", ""),
        environment=environments[record["servingEnvironmentId"]],
        model_id=record["registeredModelId"],
        version_id=record.get("modelVersionId", ""),
        runtime=record.get("runtime", ""),
        deployed={"DEPLOYED": True, "UNDEPLOYED": False}.get(record.get("desiredState", "")),
        properties=msgspec.to_builtins(record["customProperties"]),
    )
