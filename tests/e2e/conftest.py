"""Two Airflows for the whole suite: each takes 20 s to start. Tests that break parts of one put them back."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import report
from tests.e2e.cluster import Cluster
from tests.e2e.fleet import Fleet
from tests.e2e.starting import Starting


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Airflow and the pool."""
    folder = Path(os.environ.get("SENSORPOOL_TEST_E2E_FOLDER") or tmp_path_factory.mktemp("airflow"))
    sensors = ["company.FlagSensor", "company.DatedSensor", "company.ThoroughSensor", "company.RegionSensor"]
    sensors += _default_sensors()
    with Cluster(folder, slots=24, sensors_enabled=",".join(sensors), exclude="native_*") as running:
        yield running


@pytest.fixture(scope="session")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starting]:
    """An Airflow whose sensors begin without a worker, and the pool."""
    folder = tmp_path_factory.mktemp("starting") / "airflow"
    sensors = ["airflow.providers.*", "company.FlagSensor", "sensorpool.airflow.pool.dag_files.DagFileSensor"]
    settings = {"sensors_enabled": ",".join(sensors), "exclude": "native_*"}
    with Starting(folder, slots=24, start="scheduler", **settings) as running:
        yield running


def _default_sensors() -> list[str]:
    from sensorpool.airflow.configuration import AIRFLOW_SENSORS
    from sensorpool.config.defaults import BUILT_IN_SENSORS

    return [*BUILT_IN_SENSORS, *AIRFLOW_SENSORS]


@pytest.fixture
def fleet(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Sensors that wait."""
    made = Fleet(cluster, request.node.name.replace("[", "_").replace("]", ""))
    yield made
    made.land()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what came of the faults."""
    for line in report.lines():
        terminalreporter.write_line(line)
