"""A played server, and what a pull loop has taken and counted."""

import pytest

from consumer.delivery.pulls import InboxStats
from tests.unit.consumer.delivery.pulls.played_broker import PlayedBroker


@pytest.fixture
async def broker():
    return PlayedBroker()


@pytest.fixture
async def taken():
    return []


@pytest.fixture
async def stats():
    return InboxStats()
