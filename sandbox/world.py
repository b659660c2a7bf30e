"""The whole sandbox as one thing: Kubernetes API with a played KServe, Model Registry, and a real nats-server.

async with world(directory) as sandbox:
sandbox.environ       # what producer and consumer need to run against it
sandbox.cluster, sandbox.registry, sandbox.broker
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from sandbox import cluster, registry
from sandbox.broker import NatsOptions, NatsServer

NAME = "sandbox"  # of the cluster, in subjects and records


_KSERVE_CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "kserve", "name": "inferenceservice-config"},
    "data": {"inferenceService": '{"serviceAnnotationDisallowedList": [], "serviceLabelDisallowedList": []}'},
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the sandbox starts. Port 0: the system chooses. `kserve_pace` multiplies the played delays.

    `broker` False: no nats-server, for those who have one.
    """

    host: str = "127.0.0.1"
    kubernetes_port: int = 0
    registry_port: int = 0
    nats_port: int = 0
    broker: bool = True
    kserve: bool = True
    kserve_pace: float = 1.0


class World(msgspec.Struct, frozen=True):
    """A running sandbox. `broker` is None where none was asked for."""

    cluster: cluster.ClusterSandbox
    registry: registry.RegistryServer
    broker: NatsServer | None
    kubeconfig: Path

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which a producer and a consumer run against this world."""
        nats = {"NATS_URL": self.broker.url} if self.broker else {}
        return nats | {
            "KUBECONFIG": str(self.kubeconfig),
            "REGISTRY_URL": self.registry.url,
            "CLUSTER_NAME": NAME,
            "HEALTH_HOST": "127.0.0.1",
            "HEALTH_PORT": "0",
        }


@asynccontextmanager
async def world(directory: Path, options: Options | None = None) -> AsyncIterator[World]:
    """Start everything, with its files below `directory`; stop everything at the end.

    Raises OSError when a port is taken, FileNotFoundError when there is no nats-server to start.
    """
    options = options or Options()
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        broker = None
        if options.broker:
            broker = await stack.enter_async_context(
                NatsServer(directory / "nats", NatsOptions(port=options.nats_port))
            )
        settings = cluster.Settings(kserve=options.kserve, kserve_pace=options.kserve_pace)
        kubernetes = await stack.enter_async_context(
            cluster.serve(settings, host=options.host, port=options.kubernetes_port)
        )
        kubernetes.create(_KSERVE_CONFIG)
        models = await stack.enter_async_context(registry.serve(host=options.host, port=options.registry_port))
        yield World(kubernetes, models, broker, kubernetes.write_kubeconfig(directory / "kubeconfig"))
