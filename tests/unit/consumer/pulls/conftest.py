"""A played server, and what a pull loop has taken and counted."""

import pytest

from consumer.pulls import InboxStats
from tests.unit.consumer.pulls.played_broker import PlayedBroker


@pytest.fixture
async def broker():
    return PlayedBroker()


@pytest.fixture
async def taken():
    return []


@pytest.fixture
async def stats():
    return InboxStats()
