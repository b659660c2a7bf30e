"""How long a sweep of N objects in sync takes, against the sandbox registry and a real nats-server; nothing differs.

.venv/bin/python -m bench.sweep 10000
"""

import asyncio
import resource
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from opentelemetry.trace import NoOpTracer

from consumer.discovery import DiscoverySettings
from consumer.observation import observe, want
from consumer.plan import PlanSettings
from consumer.records import PROPERTY, Identity, encode_stamp, external_id
from consumer.registries import Opening, Registries
from consumer.requests.exchange import Instruments
from consumer.requests.registry_client import RegistryAccess
from consumer.services import ServiceCatalog
from consumer.stamps import stamp_for
from consumer.sweep.stream import SweptStream
from consumer.sweep.survey import Surveyor
from consumer.writeback import Target, WriteBack, WriteBackForm
from shared.broker import Broker, BrokerSettings
from shared.events import Event, EventType, SyncMarker, encode, encode_marker
from shared.objects import Component, Kind, Metadata, Model, ModelFormat, ObjectKey, ReducedObject, Spec, Status
from shared.streams import ensure_streams, stream_names
from shared.subjects import Subjects
from tests.eventually import eventually

PREFIX = "modelregistry.kubeflow.org/"
ROUNDS = 3
NOW = "2026-11-30T10:00:00Z"
DECIDING = PlanSettings(
    us=Identity("bench", "c-1"),
    prefix=PREFIX,
    environment="{namespace}",
    write_back=WriteBack.SAFE,
    target=Target(f"{PREFIX}inference-service-id", WriteBackForm.LABEL),
)
SUBJECTS = Subjects("isvc", "bench", 16)


def an_object(number: int) -> ReducedObject:
    labels = {"registered-model-id": "1", "model-version-id": "11", "inference-service-id": str(1000 + number)}
    return ReducedObject(
        kind="InferenceService",
        metadata=Metadata(
            name=f"iris-{number}",
            namespace=f"team-{number % 20}",
            uid=f"5a1e0000-0000-4000-8000-{number:012}",
            resource_version=str(100 + number),
            creation_timestamp=NOW,
            labels={PREFIX + name: value for name, value in labels.items()},
        ),
        spec=Spec(predictor=Component(model=Model(ModelFormat("sklearn"), storage_uri="s3://models/iris"))),
        status=Status(url=f"http://iris-{number}.example", deployment_mode="Standard"),
    )


def event_and_record(number: int) -> tuple[Event, ReducedObject, dict[str, Any]]:
    obj = an_object(number)
    metadata = obj.metadata
    key = ObjectKey(Kind.ISVC, metadata.namespace, metadata.name)
    digest = f"v1:{number:064x}"
    event = Event(
        EventType.CREATED, key, metadata.uid, 1, metadata.resource_version, digest, ("1",), "c-1", NOW, corrects=0
    )
    seen = observe(event, obj)
    wanted = want(seen, PREFIX)
    stamp = stamp_for(seen, wanted, "11", None, DECIDING.us)
    record = {
        "id": str(1000 + number),
        "name": f"{metadata.name}/{metadata.uid}",
        "externalId": external_id(metadata.uid, "1"),
        "servingEnvironmentId": "500",
        "registeredModelId": "1",
        "modelVersionId": "11",
        "desiredState": "DEPLOYED",
        "customProperties": {
            "url": {"metadataType": "MetadataStringValue", "string_value": wanted.url},
            PROPERTY: encode_stamp(stamp),
        },
    }
    return event, obj, record


async def fill(broker: Broker, registry: str, count: int, *, state: str = "DEPLOYED") -> None:
    """Put events into the stream, and their records into the registry in the place of whatever is there."""
    records = []
    for number in range(count):
        event, obj, record = event_and_record(number)
        await broker.client.publish(SUBJECTS.event(event.key), msgspec.json.encode(obj), headers=encode(event))
        records.append(record | {"desiredState": state})
    for kind in Kind:
        headers, body = encode_marker(SyncMarker((), "1", 1), kind=kind, cluster_id="c-1", time=NOW)
        await broker.jetstream.publish(SUBJECTS.sync(kind), body, headers=headers)
    content = {
        "registered_models": [{"id": "1", "name": "iris"}],
        "model_versions": [{"id": "11", "name": "v11", "registeredModelId": "1"}],
        "serving_environments": [{"id": "500", "name": "all"}],
        "inference_services": records,
    }
    async with httpx.AsyncClient(timeout=60) as person:
        (await person.put(f"{registry}/_sandbox/registry", content=msgspec.json.encode(content))).raise_for_status()


def surveyor(broker: Broker, registry: str) -> tuple[Surveyor, Registries]:
    instruments = Instruments(NoOpTracer(), lambda *_: None)
    opening = Opening(
        access=lambda address: RegistryAccess(base_url=address),
        in_flight=1,
        instruments=instruments,
        on_circuit=lambda *_: None,
        budget=lambda: float("inf"),
        now=time.monotonic,
    )
    catalog = ServiceCatalog(None, ())  # type: ignore[arg-type]  # no namespaces: nobody is asked
    registries = Registries(opening, catalog, DiscoverySettings(prefix=PREFIX, url=registry), DECIDING)
    stream = SweptStream(broker, SUBJECTS, stream_names("isvc").events, "c-1")

    async def no_dead_letters() -> frozenset[ObjectKey]:
        return frozenset()

    return Surveyor(stream, registries, no_dead_letters, DECIDING), registries


async def longest_pause(pauses: list[float]) -> None:
    """Note how long the event loop was held up."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.001)
        pauses.append(time.monotonic() - began)


def addresses_in(directory: Path) -> dict[str, str] | None:
    found = directory / "sandbox.json"
    return msgspec.json.decode(found.read_bytes()) if found.exists() else None


@asynccontextmanager
async def sandbox_in_a_process(directory: Path) -> AsyncIterator[dict[str, str]]:
    """Run registry and broker beside us; yield their addresses."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "sandbox", "--no-kserve", "--directory", str(directory)), stdout=DEVNULL
    )
    try:
        yield await eventually(lambda: addresses_in(directory), "the sandbox runs", 30)
    finally:
        process.terminate()
        await process.wait()


async def main(count: int) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = await stack.enter_async_context(sandbox_in_a_process(directory))
        settings = BrokerSettings(nats_url=(addresses["nats"],))
        broker = await stack.enter_async_context(Broker(settings, on_closed=lambda: None))
        await ensure_streams(broker.jetstream, settings)
        surveying, registries = surveyor(broker, addresses["registry"])
        stack.push_async_callback(registries.close)
        await fill(broker, addresses["registry"], count)
        for _ in range(ROUNDS):
            await measure(surveying, count, differences=0)
        await fill(broker, addresses["registry"], count, state="UNDEPLOYED")
        await measure(surveying, count, differences=count)


async def measure(surveying: Surveyor, count: int, *, differences: int) -> None:
    pauses: list[float] = []
    watching = asyncio.create_task(longest_pause(pauses))
    began, spent = time.monotonic(), time.process_time()
    survey = await surveying.survey()
    seconds, cpu = time.monotonic() - began, time.process_time() - spent
    watching.cancel()
    assert (survey.objects, len(survey.differences)) == (count, differences), survey.differences[:3]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count} objects and records, {differences} differ: {seconds:.2f} s, {cpu:.2f} s of them CPU, "
        f"longest pause of the loop {max(pauses) * 1000:.0f} ms, peak memory {peak_mb:.0f} MB"
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
