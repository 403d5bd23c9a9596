"""A service on a fresh PostgreSQL database and a Redis of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import audit
from tests.service import Service


@pytest.fixture
def make_service(tmp_path: Path, postgres_database: str, redis_url: str) -> Iterator[Callable[..., Service]]:
    """Makes services; ends them. The audit watches their database."""
    made: list[Service] = []

    def make(**settings: Any) -> Service:
        service = Service(tmp_path, postgres_database, redis_url, **settings)
        if not made:
            audit.install(service.pool.database)
        made.append(service)
        return service

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A service of the fast profile."""
    return make_service()
