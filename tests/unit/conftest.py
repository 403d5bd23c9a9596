"""A Redis in this process; Hypothesis without a time limit an example (a busy machine is no defect), and no files."""

from typing import Any

import fakeredis
import pytest
from hypothesis import settings

settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")


@pytest.fixture
def server() -> fakeredis.FakeServer:
    """A Redis in this process, with nothing in it."""
    return fakeredis.FakeServer()


@pytest.fixture
def client(server: fakeredis.FakeServer) -> Any:
    """Its client."""
    return fakeredis.FakeRedis(server=server, decode_responses=True)
