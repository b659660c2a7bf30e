"""A real server, and a connection to it that must hold."""

import pytest

from sandbox.broker import NatsServer
from shared.broker import Broker
from tests.integration.broker.brokers import must_not_close, settings


@pytest.fixture
async def server(tmp_path):
    async with NatsServer(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(server):
    async with Broker(settings(server.url), on_closed=must_not_close) as connected:
        yield connected
