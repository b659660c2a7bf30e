"""The whole pipeline as its users run it: producer and consumer as processes, told everything by the environment.

The world around them is the sandbox: a Kubernetes API, a Model Registry and a real nats-server.

    async with Pipeline(tmp_path, guard) as pipeline:
        pipeline.cluster.create(isvc("team-a/iris", model="1"))
        await eventually(lambda: pipeline.records())
        await pipeline.consumer.kill()
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import nats
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client

from sandbox.broker import NatsServer
from sandbox.cluster import ClusterSandbox
from sandbox.registry import RegistryServer
from sandbox.world import NAME, Options, World, world
from shared.streams import stream_names
from shared.subjects import Subjects
from tests.cluster.processes import Guard
from tests.e2e.role import Role
from tests.eventually import eventually

PREFIX = "modelregistry.kubeflow.org/"
MODEL, VERSION, ID = (PREFIX + name for name in ("registered-model-id", "model-version-id", "inference-service-id"))
STOP = "serving.kserve.io/stop"
STANDARD = {"serving.kserve.io/deploymentMode": "Standard"}  # as KServe's webhook would set it
SUBJECTS = Subjects("isvc", NAME, 16)
STREAMS = stream_names("isvc")
MODELS = 40  # registered models 1 to 40 exist in every world


def isvc(name: str, *, model: str | None = None, version: str | None = None, **metadata: Any) -> dict[str, Any]:
    """Return an InferenceService `<namespace>/<name>` as a person writes it."""
    labels = {key: value for key, value in ((MODEL, model), (VERSION, version)) if value is not None}
    namespace, _, short = name.partition("/")
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": short, "namespace": namespace, "labels": labels, **metadata},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "sklearn"}, "storageUri": "s3://models/iris"}}},
    }


class StoredMessage(Struct, frozen=True):
    """A message as the broker keeps it."""

    stream: str
    sequence: int
    subject: str
    headers: dict[str, str]
    body: bytes

    @property
    def raw(self) -> bytes:
        """Everything in it, headers included."""
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return b"\n".join((self.subject.encode(), headers.encode(), self.body))


class Pipeline:
    """A world with both processes in it, or without the consumer. KServe is played only where `options` say so."""

    world: World
    client: Client

    def __init__(
        self,
        directory: Path,
        guard: Guard,
        options: Options | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        consumer: bool = True,
    ) -> None:
        self._directory = directory
        self._guard = guard
        self._options = options or Options(kserve=False)
        self._environ = environ or {}
        self._stack = AsyncExitStack()
        self._sentinels = 0
        self._with_consumer = consumer

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.world = await stack.enter_async_context(world(self._directory, self._options))
            self.seed({})
            self.client = await nats.connect(self.broker.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
            stack.push_async_callback(self.client.close)
            self.producer, self.consumer = (self._role(module) for module in ("producer", "consumer"))
            stack.push_async_callback(self.producer.close)
            stack.push_async_callback(self.consumer.close)
            await asyncio.gather(self.producer.start(), *([self.consumer.start()] if self._with_consumer else []))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    def _role(self, module: str) -> Role:
        # As in a pod: a process that is started again has its predecessor's name, and need not wait for its leases.
        return self.another(module, module, {"POD_NAME": f"{module}-0"})

    def another(self, module: str, name: str, environ: Mapping[str, str]) -> Role:
        """Return one more process against this world, not started yet; its log is `<name>.log`."""
        given = {**self.world.environ, **self._environ, **environ}
        return Role(module, given, self._directory / f"{name}.log", self._guard)

    @property
    def cluster(self) -> ClusterSandbox:
        return self.world.cluster

    @property
    def registry(self) -> RegistryServer:
        return self.world.registry

    @property
    def broker(self) -> NatsServer:
        assert self.world.broker is not None
        return self.world.broker

    def seed(self, versions: Mapping[str, str]) -> None:
        """Fill an empty registry with models 1 to 40 and these versions (version id to model id)."""
        models = [{"id": str(number), "name": f"model-{number}"} for number in range(1, MODELS + 1)]
        self.registry.seed(
            registered_models=[] if self.registry.records("registered_models") else models,
            model_versions=[
                {"id": version, "name": f"v{version}", "registeredModelId": model}
                for version, model in versions.items()
            ],
        )

    def records(self, uid: str = "") -> list[dict[str, Any]]:
        """Return the registry's InferenceServices, all or those of an object."""
        records = self.registry.records("inference_services")
        return [record for record in records if record.get("externalId", "").startswith(f"kserve:{uid}")]

    def record_of(self, name: str) -> dict[str, Any] | None:
        """Return the one record of the living object `<namespace>/<name>`, None while there is none."""
        records = self.records(self.object(name)["metadata"]["uid"])
        assert len(records) <= 1, f"{name} has {len(records)} records"
        return records[0] if records else None

    def object(self, name: str, kind: str = "InferenceService") -> dict[str, Any]:
        namespace, _, short = name.partition("/")
        found = self.cluster.get(kind, namespace, short)
        assert found is not None, f"there is no {name}"
        return found

    def id_label(self, name: str) -> str | None:
        labels: dict[str, str] = self.object(name)["metadata"].get("labels", {})
        return labels.get(ID)

    def set_labels(self, name: str, **labels: str | None) -> None:
        """Merge labels, named by what is behind our prefix with `_` for `-`."""
        merged = {PREFIX + key.replace("_", "-"): value for key, value in labels.items()}
        self.patch(name, {"metadata": {"labels": merged}})

    def patch(self, name: str, merge: dict[str, Any]) -> None:
        namespace, _, short = name.partition("/")
        self.cluster.patch("InferenceService", (namespace, short), merge)

    async def messages(self, *streams: str) -> list[StoredMessage]:
        """Return every message of the streams (all of ours, unless named)."""
        found: list[StoredMessage] = []
        for stream in streams or (STREAMS.events, STREAMS.dlq, STREAMS.lease):
            found += [message async for message in self._messages(stream)]
        return found

    async def _messages(self, stream: str) -> AsyncIterator[StoredMessage]:
        jetstream, sequence = self.client.jetstream(), 1
        while True:
            try:
                raw = await jetstream.get_msg(stream, sequence, subject=">", next=True)
            except nats.js.errors.NotFoundError:
                return
            assert raw.seq is not None
            assert raw.subject is not None
            yield StoredMessage(stream, raw.seq, raw.subject, dict(raw.headers or {}), raw.data or b"")
            sequence = raw.seq + 1

    async def events_of(self, name: str) -> list[StoredMessage]:
        """Return the events of the object `<namespace>/<name>`, oldest first."""
        messages = await self.messages(STREAMS.events)
        return [message for message in messages if message.headers.get("ce-subject") == name]

    async def dead_letters(self) -> dict[str, str]:
        """Return the reason of each dead letter by the subject it was sent to."""
        letters = await self.messages(STREAMS.dlq)
        return {letter.headers["isvc-subject"]: unquote(letter.headers["isvc-reason"]) for letter in letters}

    async def is_idle(self) -> bool:
        """Whether the consumer has settled everything that is in the stream."""
        infos = await self.client.jetstream().consumers_info(STREAMS.events)
        return len(infos) == SUBJECTS.shards and all(i.num_pending == 0 and i.num_ack_pending == 0 for i in infos)

    async def settled(self, within_s: float = 20.0) -> None:
        """Wait until all that has happened in the cluster so far is published, handled and acknowledged.

        A new object says how far the producer has read. It may overtake events of others that wait for an
        acknowledgement, so the stream must stand still for a moment, too.
        """
        self._sentinels += 1
        name = f"sentinel/number-{self._sentinels}"
        self.cluster.create(isvc(name))
        self.cluster.create(isvc(name) | {"kind": "LLMInferenceService", "spec": {"model": {"uri": "hf://a/b"}}})
        async with asyncio.timeout(within_s):
            await eventually(lambda: self._published(name), f"{name} is published", within_s)
            still_for, before = 0, -1
            while still_for < 5:
                last = await self.last_sequence()
                still_for = still_for + 1 if last == before and await self.is_idle() else 0
                before = last
                await asyncio.sleep(0.05)

    async def _published(self, name: str) -> bool:
        return len(await self.events_of_subject(name)) == 2

    async def events_of_subject(self, name: str) -> dict[str, int]:
        """Return how many events the stream holds of an object, by subject: one for each kind of that name."""
        info = await self.client.jetstream().stream_info(
            STREAMS.events, subjects_filter=f"isvc.{NAME}.evt.*.*.{name.replace('/', '.')}"
        )
        return info.state.subjects or {}

    async def last_sequence(self) -> int:
        return int((await self.client.jetstream().stream_info(STREAMS.events)).state.last_seq)

    def writes(self) -> int:
        """How many requests to the registry so far that change records."""
        return self.registry.requests.total("POST|PATCH", "/inference_services.*")

    def reads(self) -> int:
        """How many requests to the registry so far that read records."""
        return self.registry.requests.total("GET", ".*inference_service.*")

    def patches(self) -> int:
        return self.cluster.requests.total("PATCH", "inferenceservices.*")
