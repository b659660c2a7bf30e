"""A real broker with our streams, for the consumer's side."""

import pytest

from sandbox.broker import NatsOptions, NatsServer
from shared.broker import Broker, BrokerSettings
from shared.streams import ensure_streams


@pytest.fixture
async def nats_server(tmp_path):
    async with NatsServer(tmp_path / "nats", NatsOptions(max_payload_bytes=64 * 1024)) as server:
        yield server


@pytest.fixture
async def broker_settings(nats_server):
    return BrokerSettings(nats_url=(nats_server.url,), shards=16)


@pytest.fixture
async def broker(broker_settings):
    async with Broker(broker_settings, on_closed=lambda: None) as broker:
        await ensure_streams(broker.jetstream, broker_settings)
        yield broker
