"""A real producer between a real API server and a real broker, while somebody keeps changing objects.

    async with chaos(plane, tmp_path) as world:
        recovery_s = await world.survive(fault)

The producer runs with the rights of `k8s/base`, by a bound token of its ServiceAccount in a file, as in a pod; it leads
always, because elections have tests of their own.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import yaml

from sandbox.broker import NatsServer
from shared.events import EventType
from shared.objects import Kind, ObjectKey
from tests.cluster.chaos_stream import Living, Stream, agreement, disorder, following, living
from tests.cluster.chaos_writer import NAMESPACES, Writer
from tests.cluster.control_plane import ControlPlane, assets_directory
from tests.cluster.installation import NAMESPACE, ROOT, administrator, service_account
from tests.cluster.processes import Guard, wait_until
from tests.cluster.remote_kserve import API_VERSIONS
from tests.e2e.role import Role

RESTARTS = "isvc_sync_watch_restarts_total"
CHANGES = 20  # before each fault, and again after it: about a second of each


@contextmanager
def installed(directory: Path, flags: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """A control plane of one's own, to be broken at will, with the rights of `k8s/base`."""
    plane = ControlPlane(directory, assets_directory(), flags)
    plane.start()
    try:
        for name in ("kubeflow", "kserve", *NAMESPACES):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
        plane.kubectl("apply", "--server-side", "--kustomize", str(ROOT / "k8s/base"))
        wait_until_authorised(plane)
        yield plane
    finally:
        plane.stop()


def wait_until_authorised(plane: ControlPlane) -> None:
    with plane.client(producer_token(plane)) as account:
        paths = [f"/apis/{API_VERSIONS[kind]}/{kind.plural}" for kind in Kind]
        wait_until(lambda: all(account.get(path).status_code == 200 for path in paths), "the producer's rights")


def producer_token(plane: ControlPlane) -> str:
    return plane.service_account_token(NAMESPACE, service_account(plane, "producer"))


class ChaosWorld:
    """What a test of a fault needs: the control plane, the producer, the writer and what the stream says."""

    def __init__(self, plane: ControlPlane, producer: Role, writer: Writer, stream: Stream) -> None:
        self.plane = plane
        self.producer = producer
        self.writer = writer
        self.stream = stream
        self.token_file: Path
        self._admin: httpx.AsyncClient

    async def survive(self, fault: Callable[[], Awaitable[object]], within_s: float = 60.0) -> float:
        """Let a fault strike under a stream of changes; return how long after its end the stream was right again.

        The changes go on until `CHANGES` of them were accepted after the fault. Then live ones must come through.
        """
        async with self.writer.writing():
            await self.writer.accepts(CHANGES)
            await fault()
            ended = time.monotonic()
            await self.writer.accepts(CHANGES, within_s)
        await self.agrees(within_s)
        took_s = time.monotonic() - ended
        await self.writer.burst(CHANGES)
        await self.agrees(15.0)
        return took_s

    async def agrees(self, within_s: float) -> None:
        """Wait until the stream says what the cluster says."""
        await agreement(self.truth, self.stream, within_s)
        assert disorder(self.stream.events) == []

    async def truth(self) -> dict[ObjectKey, Living]:
        """What a fresh, consistent list says of both kinds. Raises httpx.HTTPError when there is none."""
        found: dict[ObjectKey, Living] = {}
        for kind in Kind:
            answer = await self._admin.get(f"/apis/{API_VERSIONS[kind]}/{kind.plural}")
            found |= living(kind, answer.raise_for_status().json()["items"])
        return found

    async def tombstones_of_the_living(self) -> list[str]:
        """Return who has a tombstone and lives: nobody, as long as etcd goes only forward."""
        uids = {object_.uid for object_ in (await self.truth()).values()}
        return [str(event.key) for event in self.stream.of(EventType.DELETED) if event.uid in uids]

    async def restarts(self, reason: str, kind: Kind | None = None) -> float:
        """Return how often the producer opened a watch again for that reason."""
        labels = {"reason": reason} if kind is None else {"reason": reason, "kind": str(kind)}
        return await self.producer.metric(RESTARTS, **labels)

    async def all_restarts(self) -> str:
        """Return all reasons with their counts, for people."""
        reasons = ("closed", "silent", "lost", "expired", "restored", "unauthorized", "forbidden", "absent", "refused")
        reasons = (*reasons, "throttled", "unavailable", "malformed", "inconsistent", "inventory", "resync")
        counts = {reason: int(await self.restarts(reason)) for reason in reasons}
        return ", ".join(f"{reason} {count}" for reason, count in counts.items() if count)

    async def vanish(self, count: int) -> list[str]:
        """Take so many objects out of etcd, so that no API server sees them go; return their uids."""
        chosen = sorted(self.stream.last.items())[:: max(1, len(self.stream.last) // (2 * count))]
        gone = []
        for key, event in chosen:
            where = f"{key.namespace}/{key.name}"
            if len(gone) < count and await asyncio.to_thread(self.plane.take_out_of_etcd, key.kind.plural, where):
                gone.append(event.uid)
        assert len(gone) == count, gone
        return gone


@asynccontextmanager
async def chaos(plane: ControlPlane, directory: Path, seed: int = 1) -> AsyncIterator[ChaosWorld]:
    """Start broker and producer, fill the cluster, and hand over when the stream says all of it.

    At the end the producer must still run, end quietly, and have logged no exception.
    """
    async with AsyncExitStack() as stack:
        guard = Guard()
        stack.callback(guard.close)
        broker = await stack.enter_async_context(NatsServer(directory / "nats"))
        guard.started(broker.pid)
        token_file = directory / "token"
        token_file.write_text(await asyncio.to_thread(producer_token, plane))
        producer = Role("producer", _environ(plane, broker, token_file), directory / "producer.log", guard)
        stack.push_async_callback(producer.close)
        writer = Writer(plane, seed)
        stack.push_async_callback(writer.close)
        admin = await stack.enter_async_context(administrator(plane))
        await _clear(admin)
        await producer.start()
        stream = await stack.enter_async_context(following(broker.url))
        world = ChaosWorld(plane, producer, writer, stream)
        world.token_file, world._admin = token_file, admin
        stack.callback(lambda: print(producer._log_tail()))  # noqa: T201 - pytest shows it with a test that failed
        await writer.populate()
        await world.agrees(15.0)
        yield world
        assert await producer.stop() == 0
        assert b"Traceback" not in producer.log()


def _environ(plane: ControlPlane, broker: NatsServer, token_file: Path) -> dict[str, str]:
    kubeconfig = plane.write_kubeconfig(token_file.with_name("kubeconfig"), "replaced below")
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig.write_text(yaml.safe_dump(content))
    return {
        "CLUSTER_NAME": "chaos",
        "KUBECONFIG": str(kubeconfig),
        "NATS_URL": broker.url,
        "SHARDS": "4",
        "HEALTH_HOST": "127.0.0.1",
        "HEALTH_PORT": "0",
    }


async def _clear(admin: httpx.AsyncClient) -> None:
    """Take away what an earlier test has left."""
    for kind in Kind:
        for namespace in NAMESPACES:
            collection = f"/apis/{API_VERSIONS[kind]}/namespaces/{namespace}/{kind.plural}"
            (await admin.delete(collection)).raise_for_status()
