"""A producer as a real process, between the broker and the Kubernetes API of the fixture `world`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cluster.processes import Guard
from tests.e2e.role import Role
from tests.integration.producer.worlds import World


@asynccontextmanager
async def real_producer(world: World, log: Path) -> AsyncIterator[Role]:
    """Yield one that is not started yet; it is killed at the end if it still runs."""
    environ = {
        "CLUSTER_NAME": "test",
        "KUBECONFIG": str(world.settings.cluster.kubeconfig),
        "NATS_URL": world.broker.url,
        "SHARDS": str(world.settings.broker.shards),
        "HEALTH_HOST": "127.0.0.1",
        "HEALTH_PORT": "0",
    }
    guard = Guard()
    role = Role("producer", environ, log, guard)
    try:
        yield role
    finally:
        await role.close()
        guard.close()
