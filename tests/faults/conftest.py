"""A service behind proxies for each module, and the table of what came of the faults."""

import json
import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.stand import Stand, stand_on
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
def running(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Server | Elsewhere,
    postgres_template: str,
    redis_server: Server | Elsewhere,
    redis_numbers: Iterator[int],
) -> Iterator[Stand]:
    """A service with one worker of two children and a beat, for the whole module."""
    redis_url = f"{redis_server.start().url.rpartition('/')[0]}/{next(redis_numbers)}"
    with (
        fresh_database(postgres_server, template=postgres_template) as database_url,
        stand_on(tmp_path_factory.mktemp("stand"), database_url, redis_url, record_of) as stand,
    ):
        stand.start()
        yield stand
        redis_server.start()
        postgres_server.start()


@pytest.fixture
def stand(running: Stand) -> Iterator[Stand]:
    """The running service, healed afterwards."""
    yield running
    running.heal()


@pytest.fixture
def record() -> Callable[[str], Record]:
    """The record of a fault."""
    return record_of
