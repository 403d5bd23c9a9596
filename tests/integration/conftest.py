"""A service on a fresh PostgreSQL database and a Redis of its own; pools and workers in this process, on SQLite."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness import audit
from harness.service import Service
from sensorpool import Pool, Settings
from sensorpool.store.migrate import upgrade
from sensorpool.worker.context import Worker


@pytest.fixture
def sensors() -> Sequence[str]:
    """Class paths that services enable beside the scripted ones."""
    return ()


@pytest.fixture
def make_service(
    tmp_path: Path, postgres_database: str, redis_url: str, sensors: Sequence[str]
) -> Iterator[Callable[..., Service]]:
    """Makes services; ends them. The audit watches their database."""
    made: list[Service] = []

    def make(**settings: Any) -> Service:
        service = Service(tmp_path, postgres_database, redis_url, sensors=sensors, **settings)
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


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    """Makes pools on one SQLite file."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    upgrade(url)
    with ExitStack() as made:

        def make(**settings: Any) -> Pool:
            pool = Pool(Settings.load(database_url=url, **settings))
            made.callback(pool.close)
            return pool

        yield make


@pytest.fixture
def make_worker() -> Iterator[Callable[[Settings], Worker]]:
    """Makes workers; nothing is left in the Redis of this process."""
    with ExitStack() as made:

        def make(settings: Settings) -> Worker:
            worker = Worker(settings)
            made.callback(worker.close)
            worker.leases.store.client.flushall()
            return worker

        yield make


@pytest.fixture
def worker(pool: Pool, make_worker: Callable[[Settings], Worker]) -> Worker:
    """A worker of the test's pool."""
    return make_worker(pool.settings)


@pytest.fixture(params=["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def each_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a fresh database with the tables in it, of each kind in turn."""
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_database")
    upgrade(url)
    return url
