"""Fixtures of all tests: real servers, fresh databases, one seed.

A server that this machine does not have skips the tests that need it, and fails them under ``CI=true``. Tests that use
MariaDB or RabbitMQ are marked `mariadb` or `rabbitmq` by themselves: see `make test` and `make test-variants`.

Those that start the pool's own processes are marked `processes`: they take most of the time, and
``SENSORPOOL_TEST_PROCESSES=3`` takes one in three of them in each file, chosen by the run's seed.
"""

import gc
import itertools
import os
import random
import secrets
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
import redis

from harness.servers import (
    Elsewhere,
    MariaDbServer,
    Missing,
    PostgresServer,
    RabbitMqServer,
    RedisServer,
    Server,
    fresh_database,
)
from sensorpool.instrumentation import redaction
from sensorpool.leases import redis_store

AnyServer = TypeVar("AnyServer", bound=Server)

SEED = "SENSORPOOL_TEST_SEED"
MARKERS = {
    "mariadb": "needs a MariaDB server",
    "rabbitmq": "needs a RabbitMQ server",
    "processes": "starts processes of the pool, which takes seconds",
}
MARKER_OF_FIXTURE = {"mariadb_server": "mariadb", "rabbitmq_server": "rabbitmq", "make_service": "processes"}
PART = "SENSORPOOL_TEST_PROCESSES"
OUR_REDIS_KEYS = ("sensorpool*", "_kombu*")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis takes up its seed
def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    # A script starts a background job (`make test &`) with SIGINT ignored, and what the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The settings of the developer's own pool must not reach the tests.
    for name in [name for name in os.environ if name.startswith("SENSORPOOL_")]:
        if not name.startswith("SENSORPOOL_TEST_"):
            del os.environ[name]
    for name in [name for name in os.environ if name.startswith("AIRFLOW__SENSORPOOL__")]:
        del os.environ[name]
    seed = os.environ.setdefault(SEED, str(secrets.randbelow(2**32)))
    if not seed.isdecimal():
        raise pytest.UsageError(f"{SEED} must be a whole number, not {seed!r}")
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = seed


@pytest.fixture(scope="module", autouse=True)
def garbage_of_its_own() -> Iterator[None]:
    """Collect the garbage of a file's tests at its end, and not in a later import: see `tests.support.parsing`."""
    yield
    # of objects in a cycle a socket may be finalized before the connection that would have closed it
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def secrets_of_its_own() -> Iterator[None]:
    """Forget at the end of a file what its tests gave as secrets: later files would find their own words hidden."""
    known = redaction._known
    yield
    redaction.learn.cache_clear()
    redaction._known = known


@pytest.fixture(autouse=True)
def memory_of_its_own() -> Iterator[None]:
    """Give the next test a Redis of its own where it has one in this process's memory: workers may still be in it."""
    yield
    redis_store._embedded_server = None


def pytest_report_header() -> str:
    return f"seed: {SEED}={os.environ[SEED]} repeats this run's random choices"


@pytest.hookimpl(tryfirst=True)  # before `-m` takes its pick
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    if (part := int(os.environ.get(PART) or 1)) > 1:
        from tests.support.chosen import choose

        choose(config, items, lambda item: item.path.stem if item.get_closest_marker("processes") else None, part)


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed."""
    return int(os.environ[SEED])


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Random choices that are the same for a test whether it runs alone or with others."""
    return random.Random(f"{seed} {request.node.nodeid}")


# PostgreSQL


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | Elsewhere]:
    """A PostgreSQL server that a test may stop, kill and freeze; the next fresh database starts it again."""
    named = Elsewhere.named_by("SENSORPOOL_TEST_DATABASE_URL", driver="postgresql+psycopg")
    with _ours(PostgresServer, named) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Server | Elsewhere) -> Iterator[str]:
    """URL of an empty database that all tests of this run share."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: Server | Elsewhere) -> Iterator[str]:
    """URL of a database with the tables in it, to be copied and not to be used."""
    from sensorpool.store.migrate import upgrade

    with fresh_database(postgres_server) as url:
        upgrade(url)
        yield url


@pytest.fixture
def postgres_database(postgres_server: Server | Elsewhere, postgres_template: str) -> Iterator[str]:
    """URL of a database of the test's own, with the tables in it."""
    with fresh_database(postgres_server, template=postgres_template) as url:
        yield url


@pytest.fixture
def empty_database(postgres_server: Server | Elsewhere) -> Iterator[str]:
    """URL of a database without tables."""
    with fresh_database(postgres_server) as url:
        yield url


# Redis


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer | Elsewhere]:
    """A Redis server that a test may stop, kill and freeze; the next `redis_url` starts it again."""
    with _ours(RedisServer, Elsewhere.named_by("SENSORPOOL_TEST_REDIS_URL")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_numbers() -> Iterator[int]:
    """Redis's database numbers in turn, so that what outlives one test does not meet the next."""
    return itertools.cycle(range(16))


@pytest.fixture
def redis_url(redis_server: Server | Elsewhere, redis_numbers: Iterator[int]) -> Iterator[str]:
    """URL of a Redis database with nothing of ours in it."""
    url = redis_server.start().url
    if isinstance(redis_server, Elsewhere):
        delete_our_keys(url)
        yield url
        delete_our_keys(url)
        return
    url = f"{url.rpartition('/')[0]}/{next(redis_numbers)}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    yield url


def delete_our_keys(url: str) -> None:
    """Leave all other keys alone: the server is somebody else's."""
    with redis.Redis.from_url(url) as client:
        for pattern in OUR_REDIS_KEYS:
            for key in client.scan_iter(pattern, count=1000):
                client.unlink(key)


# MariaDB


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer | Elsewhere]:
    """A MariaDB server that a test may stop, kill and freeze; the next fresh database starts it again."""
    named = Elsewhere.named_by("SENSORPOOL_TEST_MARIADB_URL", driver="mysql+pymysql")
    with _ours(MariaDbServer, named, installed_by_root=True) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_url(mariadb_server: Server | Elsewhere) -> Iterator[str]:
    """URL of an empty database that all tests of this run share."""
    with fresh_database(mariadb_server) as url:
        yield url


@pytest.fixture
def mariadb_database(mariadb_server: Server | Elsewhere) -> Iterator[str]:
    """URL of a database of the test's own, with the tables in it."""
    from sensorpool.store.migrate import upgrade

    with fresh_database(mariadb_server) as url:
        upgrade(url)
        yield url


# RabbitMQ


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMqServer | Elsewhere]:
    """A RabbitMQ server that a test may stop, kill and freeze; the next `amqp_url` starts it again."""
    named = Elsewhere.named_by("SENSORPOOL_TEST_AMQP_URL")
    with _ours(RabbitMqServer, named, installed_by_root=True) as server:
        yield server


@pytest.fixture
def amqp_url(rabbitmq_server: RabbitMqServer | Elsewhere) -> Iterator[str]:
    """URL of a virtual host of the test's own; on a server that the environment names, the one named."""
    rabbitmq_server.start()
    if isinstance(rabbitmq_server, Elsewhere):
        yield rabbitmq_server.url
        return
    url = rabbitmq_server.fresh_virtual_host()
    yield url
    rabbitmq_server.start()
    rabbitmq_server.drop_virtual_host(url)


@contextmanager
def _ours(
    kind: type[AnyServer], named: Elsewhere | None, *, installed_by_root: bool = False
) -> Iterator[AnyServer | Elsewhere]:
    """Start a server, unless the environment names one."""
    if named:
        yield named
        return
    try:
        server = kind()
    except Missing as missing:
        # Only root can install a Debian package, so only root's CI run is to blame for its absence.
        expected = os.environ.get("CI") == "true" and (not installed_by_root or os.geteuid() == 0)
        (pytest.fail if expected else pytest.skip)(str(missing))
    with server:
        yield server
