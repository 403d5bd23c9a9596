"""Two Airflows for the whole suite: each takes 20 s to start. Tests that break parts of one put them back.

A run of the whole suite takes a part of the tests, chosen by its seed: one in six of the faults and of what operators
do, one in four of the cases of parity and of the rest. ``make e2e-all`` takes all.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.e2e import report
from tests.e2e.cluster import Cluster
from tests.e2e.fleet import Fleet
from tests.e2e.starting import Starting
from tests.support.chosen import choose

Airflow = TypeVar("Airflow", bound=Cluster)


ALL = os.environ.get("SENSORPOOL_TEST_E2E") == "all"
FAULTS = frozenset({"test_faults", "test_operations", "test_start_faults", "test_start_operations"})
PARITY = frozenset({"test_parity", "test_start_parity"})
KEPT = frozenset({"success", "timeout"})  # cases of parity that are always there: further tests look at them
OTHERS = frozenset({"test_external_tasks", "test_spark", "test_start", "test_ui"})


@pytest.hookimpl(trylast=True)  # after `-k` has taken its pick
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose a part of the tests, by the run's seed, where the whole suite runs."""
    if not ALL:
        choose(config, items, lambda item: item.path.stem if item.path.stem in FAULTS else None, 6)
        choose(config, items, _case, 4)
        choose(config, items, lambda item: "others" if item.path.stem in OTHERS else None, 4)


def _case(item: pytest.Item) -> str | None:
    """Return the file of a test that is about one case of parity, if others do not need that case."""
    case = _parameters(item).get("case")
    return item.path.stem if item.path.stem in PARITY and case is not None and case not in KEPT else None


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return dict(item.callspec.params) if hasattr(item, "callspec") else {}


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> frozenset[str]:
    """The cases of parity in this run: each of them takes Airflow some seconds."""
    items = [item for item in request.session.items if item.path == request.path]
    return KEPT.union(_parameters(item)["case"] for item in items if "case" in _parameters(item))


class Running:
    """One Airflow at a time in this process: one that idles takes a third of a core."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._airflow: Cluster | None = None

    def of(self, kind: type[Airflow], make: Callable[[], Airflow]) -> Airflow:
        """Return the running Airflow if it is of this kind; otherwise end it, and start another."""
        if type(self._airflow) is not kind:
            self.close()
            self._airflow = self._stack.enter_context(make())
        assert isinstance(self._airflow, kind)
        return self._airflow

    def close(self) -> None:
        """End the running Airflow."""
        self._airflow = None
        self._stack.close()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """The Airflow that runs now."""
    with closing(Running()) as airflow:
        yield airflow


@pytest.fixture(scope="module")
def cluster(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Airflow and the pool."""

    def make() -> Cluster:
        folder = Path(os.environ.get("SENSORPOOL_TEST_E2E_FOLDER") or tmp_path_factory.mktemp("airflow"))
        sensors = ["company.FlagSensor", "company.DatedSensor", "company.ThoroughSensor", "company.RegionSensor"]
        sensors += ["company.WrappedSensor", "company.PatientSensor"]
        sensors += _default_sensors()
        return Cluster(folder, slots=24, sensors_enabled=",".join(sensors), exclude="native_*")

    return running.of(Cluster, make)


@pytest.fixture(scope="module")
def starting(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Starting:
    """An Airflow whose sensors begin without a worker, and the pool."""

    def make() -> Starting:
        folder = tmp_path_factory.mktemp("starting") / "airflow"
        sensors = ["airflow.providers.*", "company.FlagSensor", "sensorpool.airflow.pool.dag_files.DagFileSensor"]
        settings = {"sensors_enabled": ",".join(sensors), "exclude": "native_*"}
        return Starting(folder, slots=24, start="scheduler", **settings)

    return running.of(Starting, make)


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


@pytest.fixture(autouse=True)
def _hand_in(request: pytest.FixtureRequest) -> Iterator[None]:
    report.begin_test()
    yield
    report.hand_in(request.node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what came of the faults."""
    for line in report.lines(each for reports in terminalreporter.stats.values() for each in reports):
        terminalreporter.write_line(line)
