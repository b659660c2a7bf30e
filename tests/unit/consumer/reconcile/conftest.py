"""A world to reconcile in, before and after its object is known."""

import pytest

from tests.unit.consumer.reconciling import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
async def linked(world):
    """A world in which the object is recorded, linked and known."""
    await world.link()
    return world
