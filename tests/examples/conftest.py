"""A Redis of their own: the examples name its databases by number."""

from collections.abc import Iterator

import pytest

from harness.servers import RedisServer


@pytest.fixture
def own_redis() -> Iterator[str]:
    """URL of an empty Redis, without the number of a database."""
    with RedisServer() as server:
        yield server.url.rpartition("/")[0]
