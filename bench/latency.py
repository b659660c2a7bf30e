"""How long it takes from the publish of an event to the write of its record, with nothing else to do.

    python -m bench.latency --objects 200 --rounds 3

A real nats-server, the sandbox's registry in a process of its own, and `python -m consumer` in another. Events are
published one at a time, with random pauses much longer than a record takes, so nothing waits for anything but the
machine: first new objects, each with a registered model and version that the consumer has not asked for before (two
reads and a create at the registry), then a change of each (one read and one PATCH).

The time runs from right before `publish` (the broker's acknowledgement to the publisher is part of it, not waited for)
to the moment at which the record is changed for every reader of the registry: `bench/registry.py` notes that inside the
server, on the clock that all processes of a machine share. Nobody polls. The write-back of the id is switched off: it
comes after the record.

A benchmark shares its machine. `late ms` is how much too late this process itself woke up from its pauses (p99; 2 is
nothing), and the verdict is about the quietest round, by its p99. Where others keep the processors busy, be served
before them: `chrt -f 10 python -m bench.latency`, as root.

The exit code is 1 when p50 or p99 of either kind is over its limit. Linux only.
"""

import argparse
import asyncio
import math
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import nats
from nats.aio.client import Client

from bench.fleet import Fleet
from bench.process import Process, daemon
from bench.registry import NOTES
from consumer.records import external_id
from sandbox import cluster as kubernetes
from sandbox.broker import NatsServer
from shared.events import Event, EventType, encode
from shared.objects import Kind, ObjectKey
from shared.reduce import digest_of, reduce_object
from shared.streams import stream_names
from shared.subjects import Subjects

P50_MS, P99_MS = 15.0, 60.0
SUBJECTS = Subjects("isvc", "bench", 16)
_STREAM = stream_names("isvc").events
_KINDS = (EventType.CREATED.value, EventType.UPDATED.value)
_SEEN = "2026-11-30T10:00:00Z"
_PAUSE_S = (0.03, 0.12)
_WARM_UP = 20
_READY_S_MAX = 30.0
_LAST_S_MAX = 60.0


class Latencies(msgspec.Struct, frozen=True):
    """Milliseconds of one kind of event in one round, sorted. `late_ms`: how late our own pauses ended, p99."""

    kind: str
    ms: tuple[float, ...]
    late_ms: float

    def at(self, share: float) -> float:
        return _at(share, self.ms)

    @property
    def holds(self) -> bool:
        return self.at(0.5) < P50_MS and self.at(0.99) < P99_MS

    def row(self, number: int) -> str:
        figures = " ".join(f"{each:>8.1f}" for each in (self.at(0.5), self.at(0.9), self.at(0.99), self.ms[-1]))
        return f"{number:>5} {self.kind:<8} {len(self.ms):>7} {figures} {self.late_ms:>8.1f}"


def _at(share: float, values: Sequence[float]) -> float:
    """Return the smallest of sorted values that at least `share` of them do not exceed."""
    return values[math.ceil(share * len(values)) - 1]


HEADER = (
    f"{'round':>5} {'event':<8} {'events':>7} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8} {'max ms':>8} {'late ms':>8}"
)


class Stage:
    """A consumer that is idle, its registry, and what is published to it."""

    def __init__(self, client: Client, registry: str, cluster_id: str, size: int) -> None:
        self._client = client
        self._registry = registry
        self._cluster_id = cluster_id
        self._fleet = Fleet(size)
        self._random = random.Random(1)
        self._published: dict[tuple[str, str], int] = {}  # by kind and externalId: nanoseconds
        self._late_ms: dict[str, list[float]] = {}  # by kind, in this round

    async def seed(self) -> None:
        """Fill the registry with a model and a version for each object."""
        models, versions = [], []
        for number in range(self._fleet.size):
            model, version = str(number + 1), str(number + 1)
            models.append({"id": model, "name": f"model-{number}"})
            versions.append({"id": version, "name": f"v{number}", "registeredModelId": model})
        content = msgspec.json.encode({"registered_models": models, "model_versions": versions})
        async with httpx.AsyncClient(timeout=60) as person:
            (await person.put(f"{self._registry}/_sandbox/registry", content=content)).raise_for_status()

    async def publish(self, numbers: range) -> None:
        """Publish the creation of each object, then a change of each, with pauses."""
        self._late_ms = {kind: [] for kind in _KINDS}
        for number in numbers:
            await self._publish(number, EventType.CREATED)
        for number in numbers:
            self._fleet.change(number, relevant=True)
            await self._publish(number, EventType.UPDATED)

    async def _publish(self, number: int, kind: EventType) -> None:
        raw = msgspec.json.decode(self._fleet.object(number))
        raw["metadata"]["labels"]["modelregistry.kubeflow.org/model-version-id"] = str(number + 1)
        reduced = reduce_object(raw)
        metadata = raw["metadata"]
        event = Event(
            type=kind,
            key=ObjectKey(Kind.ISVC, metadata["namespace"], metadata["name"]),
            uid=metadata["uid"],
            epoch=1,
            resource_version=metadata["resourceVersion"],
            digest=digest_of(reduced),
            models=(str(number + 1),),
            cluster_id=self._cluster_id,
            time=_SEEN,
        )
        subject, headers, body = SUBJECTS.event(event.key), encode(event), msgspec.json.encode(reduced)
        wake_s = time.monotonic() + self._random.uniform(*_PAUSE_S)
        await asyncio.sleep(wake_s - time.monotonic())
        self._late_ms[kind.value].append(1000 * (time.monotonic() - wake_s))
        self._published[kind.value, external_id(event.uid, str(number + 1))] = time.monotonic_ns()
        await self._client.jetstream().publish(subject, body, headers=headers)

    async def latencies(self, numbers: range) -> list[Latencies]:
        """Return what the events of these objects took, when all are written."""
        names = {external_id(self._fleet_uid(number), str(number + 1)) for number in numbers}
        written = await self._written(names)
        return [
            Latencies(
                kind,
                tuple(sorted((written[name][place] - self._published[kind, name]) / 1e6 for name in names)),
                _at(0.99, sorted(self._late_ms[kind])),
            )
            for place, kind in enumerate(_KINDS)
        ]

    async def _written(self, names: set[str]) -> dict[str, list[int]]:
        """Return when each record was written, once all were written twice. Raises RuntimeError when they are not."""
        ends_s = time.monotonic() + _LAST_S_MAX
        async with httpx.AsyncClient(timeout=60) as person:
            while True:
                written: dict[str, list[int]] = (await person.get(self._registry + NOTES)).json()
                missing = sum(len(written.get(name, ())) < len(_KINDS) for name in names)
                if not missing:
                    return written
                if time.monotonic() > ends_s:
                    raise RuntimeError(f"{missing} of {len(names)} records were not written twice: too busy a machine?")
                await asyncio.sleep(0.1)

    def _fleet_uid(self, number: int) -> str:
        uid: str = msgspec.json.decode(self._fleet.object(number))["metadata"]["uid"]
        return uid


@asynccontextmanager
async def registry_process() -> AsyncIterator[str]:
    """Run the registry beside us; yield its address."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.registry", stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def stage(directory: Path, size: int) -> AsyncIterator[Stage]:
    """Start the parties; yield when the consumer pulls from every shard."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(NatsServer(directory / "nats"))
        registry = await stack.enter_async_context(registry_process())
        cluster = await stack.enter_async_context(kubernetes.serve())
        namespace = cluster.get("Namespace", "", "kube-system")
        assert namespace is not None, "the sandbox has it"
        client = await nats.connect(broker.url)
        stack.push_async_callback(client.close)
        found = Stage(client, registry, namespace["metadata"]["uid"], size)
        await found.seed()
        environ = {
            "KUBECONFIG": str(cluster.write_kubeconfig(directory / "kubeconfig")),
            "NATS_URL": broker.url,
            "REGISTRY_URL": registry,
            "CLUSTER_NAME": SUBJECTS.cluster,
            "WRITE_BACK": "off",
            "HEALTH_HOST": "127.0.0.1",
            "HEALTH_PORT": "0",
        }
        process = await stack.enter_async_context(daemon("consumer", directory, environ))
        await _until(process, lambda: _pulls(client))
        yield found


async def _pulls(client: Client) -> bool:
    """Whether somebody asks for the messages of every shard."""
    try:
        infos = await client.jetstream().consumers_info(_STREAM)
    except nats.js.errors.NotFoundError:
        return False
    return sum(bool(info.num_waiting) for info in infos) == SUBJECTS.shards


async def _until(process: Process, done: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_READY_S_MAX):
        while not await done():
            process.require_alive()
            await asyncio.sleep(0.05)


async def measure(directory: Path, objects: int, rounds: int) -> list[list[Latencies]]:
    """Return what each round found, by kind of event."""
    found: list[list[Latencies]] = []
    print(HEADER, flush=True)
    async with stage(directory, _WARM_UP + objects * rounds) as running:
        await running.publish(range(_WARM_UP))
        for number in range(rounds):
            numbers = range(_WARM_UP + objects * number, _WARM_UP + objects * (number + 1))
            await running.publish(numbers)
            found.append(await running.latencies(numbers))
            print("\n".join(each.row(number + 1) for each in found[-1]), flush=True)
    return found


def main(objects: int, rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="isvc-sync-bench-") as directory:
        found = asyncio.run(measure(Path(directory), objects, rounds))
    quietest = [min(those, key=lambda each: each.at(0.99)) for those in zip(*found, strict=True)]
    holds = all(each.holds for each in quietest)
    words = ", ".join(f"{each.kind} p50 {each.at(0.5):.1f} ms, p99 {each.at(0.99):.1f} ms" for each in quietest)
    print(f"{'ok' if holds else 'TOO SLOW'}: {words}; limits {P50_MS:.0f} ms and {P99_MS:.0f} ms")
    return 0 if holds else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__.partition("\n")[0])
    parser.add_argument("--objects", type=int, default=200, help="new ones in each round, each changed once")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    sys.exit(main(given.objects, given.rounds))
