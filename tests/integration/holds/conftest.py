"""A real nats-server, who answers there for what is held, and who asks."""

from contextlib import AsyncExitStack

import pytest

from sandbox.broker import NatsServer
from shared.broker import Broker
from shared.holds import HoldClient, HoldServer, Patience
from tests.integration.holds.holding import CLUSTER_ID, SUBJECTS, Keeper, connected


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(server):
    async with connected(server) as connection:
        yield connection


@pytest.fixture
async def serve(server):
    """Start a process's worth of answers: `await serve("name", producer=Keeper(...))`."""
    async with AsyncExitStack() as stack:

        async def start(name: str, **keepers: Keeper) -> Broker:
            connection = await stack.enter_async_context(connected(server))
            answering = HoldServer(connection, SUBJECTS, CLUSTER_ID, name)
            for part, keeper in keepers.items():
                answering.register(part, lambda keeper=keeper: keeper.holds, keeper.release)
            await stack.enter_async_context(answering)
            await connection.client.flush()
            return connection

        yield start


@pytest.fixture
def holders(broker) -> HoldClient:
    """Waits long for answers that will come: both parts speak, or the release is decided."""
    return HoldClient(broker, SUBJECTS, Patience(within_s=15, quiet_s=0.05))


@pytest.fixture
def hasty(broker) -> HoldClient:
    """For answers that will not come."""
    return HoldClient(broker, SUBJECTS, Patience(within_s=1.5, quiet_s=0.05))
