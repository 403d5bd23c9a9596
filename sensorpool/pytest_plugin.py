"""The fixture `sensor_pool`: ``pytest_plugins = ["sensorpool.pytest_plugin"]`` in a ``conftest.py`` brings it."""

from collections.abc import Iterator

import pytest

from sensorpool.testing import Sent, TestPool, pool

__all__ = ["Sent", "TestPool", "pool", "sensor_pool"]


@pytest.fixture
def sensor_pool() -> Iterator[TestPool]:
    """A pool of this test: see `sensorpool.testing.pool`."""
    with pool() as made:
        yield made
