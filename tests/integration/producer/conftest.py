"""A real broker, the sandbox's Kubernetes API, and a server that plays a script."""

import pytest

from producer.settings import ProducerSettings
from sandbox import cluster as sandbox_cluster
from sandbox.broker import NatsOptions, NatsServer
from sandbox.cluster.watch import WatchSettings
from shared.broker import BrokerSettings
from shared.cluster import ClusterSettings
from shared.health import HealthSettings
from shared.naming import NamingSettings
from tests.integration.producer.playing import staged
from tests.integration.producer.worlds import World


@pytest.fixture
async def broker_server(tmp_path):
    async with NatsServer(tmp_path / "nats", NatsOptions(max_payload_bytes=256 * 1024)) as server:
        yield server


@pytest.fixture
async def world(tmp_path, broker_server):
    # An audit waits for the next bookmark.
    bookmarking = sandbox_cluster.Settings(watching=WatchSettings(bookmark_interval_s=1.0))
    async with sandbox_cluster.serve(bookmarking) as cluster:
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        settings = ProducerSettings(
            naming=NamingSettings(cluster_name="test"),
            broker=BrokerSettings(nats_url=(broker_server.url,), shards=4, stream_max_bytes=64 * 1024 * 1024),
            cluster=ClusterSettings(kubeconfig=str(kubeconfig)),
            health=HealthSettings(health_host="127.0.0.1", health_port=0),
        )
        world = World(broker_server, cluster, settings)
        yield world
        await world.close()


@pytest.fixture
async def stage(tmp_path, broker_server, monkeypatch):
    async with staged(tmp_path, broker_server, monkeypatch) as ready:
        ready.cluster.create("a", model="1")
        ready.cluster.create("b")
        ready.cluster.create("c", model="3")
        yield ready


@pytest.fixture
def cluster(stage):
    return stage.cluster
