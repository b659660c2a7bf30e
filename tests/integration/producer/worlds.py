"""A real broker's stream, the sandbox's Kubernetes API, and producers that run in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import nats
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from producer.app import run
from producer.settings import ProducerSettings
from sandbox.broker import NatsServer
from sandbox.cluster import ClusterSandbox
from shared.events import Event, decode
from shared.objects import Kind, ObjectKey
from shared.subjects import Subjects
from shared.telemetry import Telemetry
from tests.eventually import eventually

MODEL = "modelregistry.kubeflow.org/registered-model-id"


def isvc(name: str, namespace: str = "ns", *, model: str = "", kind: str = "InferenceService", **spec: Any) -> Any:
    version = {"InferenceService": "v1beta1", "LLMInferenceService": "v1alpha1"}[kind]
    return {
        "apiVersion": f"serving.kserve.io/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {MODEL: model} if model else {}},
        "spec": spec or {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://bucket/x"}}},
    }


class World:
    """The two servers, and what is in the stream."""

    def __init__(self, broker: NatsServer, cluster: ClusterSandbox, settings: ProducerSettings) -> None:
        self.broker = broker
        self.cluster = cluster
        self.settings = settings
        self._client: Any = None

    async def js(self) -> Any:
        if self._client is None:
            self._client = await nats.connect(self.broker.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        return self._client.jetstream(timeout=2)

    async def messages(self) -> list[Any]:
        """All messages of the event stream, oldest first; none while it is not there."""
        js = await self.js()
        try:
            info = await js.stream_info("ISVC_EVENTS")
            numbers = range(info.state.first_seq, info.state.last_seq + 1)
            return [await js.get_msg("ISVC_EVENTS", number) for number in numbers]
        except (JetStreamError, NatsError):
            return []

    async def last(self, name: str, namespace: str = "ns") -> Any:
        """Return the last message about an InferenceService, or None."""
        subjects = Subjects("isvc", "test", self.settings.broker.shards)
        js = await self.js()
        try:
            return await js.get_msg("ISVC_EVENTS", subject=subjects.event(ObjectKey(Kind.ISVC, namespace, name)))
        except (JetStreamError, NatsError):
            return None

    async def last_marker(self, kind: str) -> Any:
        js = await self.js()
        try:
            return await js.get_msg("ISVC_EVENTS", subject=f"isvc.test.sync.{kind}")
        except (JetStreamError, NatsError):
            return None

    async def events(self, name: str | None = None) -> list[Event]:
        found = [decode(message.headers) for message in await self.messages() if ".evt." in message.subject]
        return [event for event in found if name in {None, event.key.name}]

    async def said(self, name: str | None = None) -> list[str]:
        return [event.type.value for event in await self.events(name)]

    async def markers(self, kind: str = "isvc") -> int:
        return sum(message.subject.endswith(f".sync.{kind}") for message in await self.messages())

    async def run(self, settings: ProducerSettings | None = None) -> None:
        """Run a producer in this process until it is cancelled."""
        settings = settings or self.settings
        await run(settings, Telemetry(settings.telemetry, role="producer"), environ={})

    @asynccontextmanager
    async def producing(self, settings: ProducerSettings | None = None) -> AsyncIterator["asyncio.Task[None]"]:
        """Run a producer for the length of the block, from the announcement that its first passes are complete."""
        before = [await self.markers(kind) for kind in self.settings.kinds]
        task = asyncio.create_task(self.run(settings))

        async def synced() -> bool:
            if task.done():
                task.result()
            now = [await self.markers(kind) for kind in self.settings.kinds]
            return all(b < n for b, n in zip(before, now, strict=True))

        try:
            await eventually(synced)
            yield task
        finally:
            await stop(task)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


async def stop(task: "asyncio.Task[None]") -> float:
    """Cancel a producer and return how long it took to end."""
    began = asyncio.get_running_loop().time()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return asyncio.get_running_loop().time() - began


@asynccontextmanager
async def running(world, said, caplog):
    """Run a producer that announces nothing, from the moment when it has said something in its log."""
    caplog.clear()
    task = asyncio.create_task(world.run())
    try:
        await eventually(lambda: said in caplog.text, within_s=20.0)
        yield task
    finally:
        await stop(task)


async def told(world):
    """What the stream says last of each object: <namespace>/<name> -> type."""
    return {f"{event.key.namespace}/{event.key.name}": event.type.value for event in await world.events()}
