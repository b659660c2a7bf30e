"""A real broker with our streams, for the consumer's side."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

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


@pytest.fixture
async def eventually():
    async def wait(condition: Callable[[], Any], within_s: float = 10.0) -> None:
        """Poll a condition, which may be a coroutine function, until it holds; fail with what it last was."""
        seen = None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    seen = condition()
                    if inspect.isawaitable(seen):
                        seen = await seen
                    if seen:
                        return
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"did not become true within {within_s} s: last was {seen!r}")

    return wait
