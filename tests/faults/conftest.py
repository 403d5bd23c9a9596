"""A service behind proxies for each module, and the table of the faults' results.

A run of the whole suite takes one in four of each module's tests, chosen by its seed; ``make faults-all`` takes all of
them.
"""

import json
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Elsewhere, Server, fresh_database
from tests.faults.stand import Stand, stand_on
from tests.faults.trial import OF_FAULTS, Record
from tests.integration.conftest import make_service, service  # noqa: F401  # fixtures
from tests.support.chosen import choose

TABLE = "SENSORPOOL_TEST_FAULTS_TABLE"  # the file for the table as JSON

ALL = os.environ.get("SENSORPOOL_TEST_FAULTS") == "all" or bool(os.environ.get("SENSORPOOL_TEST_FULL"))
ONE_IN = 4

_of_this_test: dict[str, Record] = {}


def record_of(fault: str) -> Record:
    """Return this test's record of a fault."""
    return _of_this_test.setdefault(fault, Record(fault))


@pytest.hookimpl(trylast=True)  # after `-k` has taken its pick
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose one in four of the tests of each module; the model and the seeded faults go by rules of their own."""
    if not ALL:
        here = Path(__file__).parent
        choose(config, items, lambda item: item.path.stem if item.path.parent == here else None, ONE_IN)


@pytest.fixture(autouse=True)
def _hand_in(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hand the test's records in with its report, which also comes from other processes."""
    _of_this_test.clear()
    yield
    request.node.user_properties.extend(("fault", asdict(record)) for record in _of_this_test.values())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and write it to the file that the environment names."""
    table: dict[str, Record] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, value in report.user_properties:
                    if name == "fault":
                        table.setdefault(value["fault"], Record(value["fault"])).merge(Record(**value))
    if not table:
        return
    rows = sorted(table.values(), key=lambda record: _number(record.fault))
    line = "{:<56} {:>5} {:>8} {:>5} {:>8} {:>6} {:>6} {:>6}"
    terminalreporter.section("faults (recovery in intervals)")
    terminalreporter.write_line(line.format("fault", "runs", "sensors", "lost", "doubled", "wrong", "p50", "max"))
    for record in rows:
        terminalreporter.write_line(line.format(record.fault[:56], *_cells(record)))
    if path := os.environ.get(TABLE):
        Path(path).write_text(json.dumps([asdict(record) for record in rows], indent=1) + "\n")


def _cells(record: Record) -> tuple[Any, ...]:
    middle = f"{statistics.median(record.recovery):.2f}" if record.recovery else "-"
    most = f"{max(record.recovery):.2f}" if record.recovery else "-"
    return record.runs, record.sensors, record.lost, record.doubled, record.wrong, middle, most


def _number(fault: str) -> tuple[int, str]:
    head = fault.partition(" ")[0]
    return (int(head) if head.isdecimal() else 99, fault)


@pytest.fixture
def sensors() -> Sequence[str]:
    """Class paths that services enable beside the scripted ones."""
    return OF_FAULTS


@pytest.fixture(scope="module")
def stand_settings() -> dict[str, Any]:
    """How the service of a module differs from others; a module may have its own."""
    return {"sensors": OF_FAULTS}


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Server | Elsewhere,
    postgres_template: str,
    redis_server: Server | Elsewhere,
    redis_numbers: Iterator[int],
    stand_settings: dict[str, Any],
) -> Iterator[Stand]:
    """A service with one worker of two children and a beat, for the whole module."""
    redis_url = f"{redis_server.start().url.rpartition('/')[0]}/{next(redis_numbers)}"
    with (
        fresh_database(postgres_server, template=postgres_template) as database_url,
        stand_on(tmp_path_factory.mktemp("stand"), database_url, redis_url, record_of, **stand_settings) as stand,
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
    """Return the record of a fault."""
    return record_of
