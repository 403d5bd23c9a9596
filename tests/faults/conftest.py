"""A service behind proxies for each module, and the table of what came of the faults."""

import json
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.faults.proxy import Proxy
from tests.faults.stand import Stand, behind_proxies
from tests.faults.trial import Record
from tests.integration.conftest import make_service, service  # noqa: F401  # fixtures
from tests.servers import Elsewhere, Server, fresh_database

TABLE = "SENSORPOOL_TEST_FAULTS_TABLE"  # where to leave the table as JSON

_records: dict[str, Record] = {}


def record_of(fault: str) -> Record:
    """Return the record of a fault, which its trials share."""
    return _records.setdefault(fault, Record(fault))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and leave it where the environment says."""
    if not _records:
        return
    terminalreporter.section("faults")
    line = "{:<58} {:>5} {:>8} {:>5} {:>8} {:>6} {:>6} {:>6}"
    terminalreporter.write_line(
        line.format("fault", "runs", "sensors", "lost", "doubled", "wrong", "p50", "max") + "  (recovery, intervals)"
    )
    for record in _records.values():
        middle = f"{statistics.median(record.recovery):.2f}" if record.recovery else "-"
        most = f"{max(record.recovery):.2f}" if record.recovery else "-"
        cells = (record.runs, record.sensors, record.lost, record.doubled, record.wrong, middle, most)
        terminalreporter.write_line(line.format(record.fault[:58], *cells))
    if path := os.environ.get(TABLE):
        Path(path).write_text(json.dumps([record.as_dict() for record in _records.values()], indent=1))


@pytest.fixture(scope="module")
def make_stand(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Server | Elsewhere,
    postgres_template: str,
    redis_server: Server | Elsewhere,
    redis_numbers: Iterator[int],
) -> Iterator[Callable[..., Stand]]:
    """Makes one service behind proxies; ends it."""
    made: list[Stand] = []
    url = redis_server.start().url
    redis_url = f"{url.rpartition('/')[0]}/{next(redis_numbers)}"
    with (
        fresh_database(postgres_server, template=postgres_template) as database_url,
        Proxy(int(url.rpartition(":")[2].partition("/")[0])) as redis,
        Proxy(make_url(database_url).port or 0) as postgres,
    ):

        def make(**settings: Any) -> Stand:
            folder = tmp_path_factory.mktemp("stand")
            behind = behind_proxies(folder, database_url, redis_url, redis, postgres, **settings)
            made.append(Stand(behind, redis, postgres, record_of))
            behind.pool.leases.client.flushdb()
            return made[-1]

        yield make
        for stand in made:
            redis_server.start()
            postgres_server.start()
            stand.heal()
            stand.service.stop()


@pytest.fixture(scope="module")
def running(make_stand: Callable[..., Stand]) -> Stand:
    """A service with one worker of two children and a beat, for the whole module."""
    stand = make_stand()
    stand.start()
    return stand


@pytest.fixture
def stand(running: Stand) -> Iterator[Stand]:
    """The running service, healed afterwards."""
    yield running
    running.heal()


@pytest.fixture
def record() -> Callable[[str], Record]:
    """The record of a fault."""
    return record_of
