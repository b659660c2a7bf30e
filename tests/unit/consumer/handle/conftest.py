"""A handler over fakes."""

import pytest

from tests.unit.consumer.handling import World


@pytest.fixture
def world():
    return World()
