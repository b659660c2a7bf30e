"""What every test here may ask for."""

import pytest

from tests.cluster.processes import Guard


@pytest.fixture(scope="session")
def guard():
    """Nothing that a test starts outlives the run, however that ends."""
    guard = Guard()
    yield guard
    guard.close()
