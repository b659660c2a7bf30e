"""The whole producer, in this process, against a script and a real broker; afterwards the two are compared."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from producer import watch
from producer.app import run
from producer.settings import ProducerSettings
from shared import cluster as shared_cluster
from shared import health
from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.events import Event, EventType, decode
from shared.health import HealthSettings
from shared.naming import NamingSettings
from shared.objects import Kind
from shared.telemetry import Telemetry
from tests.eventually import eventually
from tests.integration.producer.scripted import Response, ScriptedServer
from tests.integration.producer.scripted_cluster import Cluster
from tests.integration.producer.worlds import World, stop

BACKOFF_S = 0.01  # the mean first pause is half of it


class Stage:
    """One cluster as the script's server tells it, one broker, and producers that stand between them."""

    def __init__(self, server: ScriptedServer, world: World, token: Path, patch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.cluster = server.cluster
        self.world = world
        self.token = token
        self.telemetry = Telemetry(world.settings.telemetry, role="producer")
        self._patch = patch
        self.pause_at_most(BACKOFF_S)
        patch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)  # 20 ms each, and unused here
        patch.setattr(health, "_POLL_S", 0.01)  # the probes' server ends as soon as the producer

    def pause_at_most(self, base_s: float, max_s: float = 30.0) -> None:
        """Set the pauses after failures."""
        self._patch.setattr(watch, "BACKOFF_BASE_S", base_s)
        self._patch.setattr(watch, "BACKOFF_MAX_S", max_s)

    def lose_patience_after(self, silence_s: float) -> None:
        """Set how long a watch, and a list, may be silent."""
        self._patch.setattr(shared_cluster, "_WATCH_READ_TIMEOUT_S", silence_s)
        self._patch.setattr(shared_cluster, "_CONTROL_READ_TIMEOUT_S", silence_s)

    @asynccontextmanager
    async def producing(self) -> AsyncIterator["asyncio.Task[None]"]:
        task = asyncio.create_task(run(self.world.settings, self.telemetry, environ={}))
        try:
            yield task
        finally:
            await stop(task)

    async def perform(self, *script: Response) -> None:
        """Let a producer meet the whole script; then the stream must say what the cluster holds."""
        self.server.script.extend(script)
        async with self.producing() as task:
            await eventually(lambda: task.done() or self.server.wrong or self.server.finished)
            assert not self.server.wrong
            await eventually(lambda: task.done() or self.server.wrong or self.agrees())
            if task.done():
                task.result()
        await self.check()

    async def agrees(self) -> bool:
        """Whether the last events say what the cluster holds."""
        last = {event.key.name: event for event, _ in await self._stored()}
        living = {name: (event.uid, event.digest) for name, event in last.items() if event.type != EventType.DELETED}
        found = map(self.cluster.observed, self.cluster.objects)
        return living == {each.key.name: (each.uid, each.digest) for each in found}

    async def check(self) -> None:
        """Nothing is lost, nothing invented, nothing said twice, and the server was asked as the script says."""
        assert self.server.wrong == []
        assert self.server.overlaps == 0
        assert await self.agrees()
        stored = await self._stored()
        for event, body in stored:
            if event.type == EventType.DELETED:
                assert event.uid in self.cluster.gone
                assert body["metadata"]["uid"] == event.uid
            else:
                assert body == self.cluster.states[event.uid, event.resource_version]
        assert max(Counter(event.id for event, _ in stored).values(), default=1) == 1
        deleted = Counter(event.uid for event, _ in stored if event.type == EventType.DELETED)
        assert deleted == dict.fromkeys({event.uid for event, _ in stored} & self.cluster.gone, 1)

    async def said(self, name: str) -> list[str]:
        """What the stream says of one object: type and resourceVersion, with a mark on synthetic events."""
        events = await self.world.events(name)
        return [f"{event.type.value} {event.resource_version}{'!' * event.synthetic}" for event in events]

    def counted(self, reason: str) -> int:
        """How often the watch was interrupted for this reason."""
        return self.metric(f'isvc_sync_watch_restarts_total{{kind="isvc",reason="{reason}"}}')

    def metric(self, name: str) -> int:
        lines = self.telemetry.scrape()[1].decode().splitlines()
        return sum(int(float(text.rpartition(" ")[2])) for text in lines if text.startswith(name))

    async def settled(self, messages: int) -> None:
        """Wait until so many messages, markers included, are acknowledged to the producer."""
        await eventually(lambda: self.metric("messaging_client_sent_messages_total") == messages)

    async def _stored(self) -> list[tuple[Event, Any]]:
        messages = [message for message in await self.world.messages() if ".evt." in message.subject]
        return [(decode(message.headers), msgspec.json.decode(message.data)) for message in messages]


@asynccontextmanager
async def staged(folder: Path, broker: Any, patch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    token = folder / "token"
    token.write_text("t1")
    async with ScriptedServer(Cluster()) as server:
        settings = ProducerSettings(
            naming=NamingSettings(cluster_name="test"),
            kinds=(Kind.ISVC,),
            broker=BrokerSettings(nats_url=(broker.url,), shards=4, stream_max_bytes=64 * 1024 * 1024),
            cluster=ClusterSettings(kubeconfig=str(_kubeconfig(folder, server.url))),
            health=HealthSettings(health_host="127.0.0.1", health_port=0),
        )
        stage = Stage(server, World(broker, server, settings), token, patch)
        yield stage
        await stage.world.close()


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"tokenFile": str(folder / "token")}}],
    }
    path.write_bytes(msgspec.json.encode(content))  # JSON is YAML
    return path
