"""What Airflow's sensors need to be poked without Airflow: connections in the environment, and servers to ask."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.servers import Elsewhere, Server, fresh_database

if TYPE_CHECKING:
    from sensorpool.airflow.triggerer.notifier import Notifier
    from tests.airflow.company_hook import Company
    from tests.airflow.dag_file_world import World
    from tests.airflow.metadata import Metadata

HERE = Path(__file__).parent
# in other versions Airflow and its providers are not of one age, and warn of each other
MAIN = "3.3."
# Airflow's own providers use what Airflow has deprecated
_THEIRS = (r"ignore:The `airflow\.utils\.operator_helpers\.\w+` attribute is deprecated",)


def pytest_configure(config: pytest.Config) -> None:
    for warning in _THEIRS:
        config.addinivalue_line("filterwarnings", warning)
    if not metadata.version("apache-airflow-core").startswith(MAIN):
        config.addinivalue_line("filterwarnings", "default")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"  # one of them is a listener
    # Importing airflow writes a configuration and logs into its home; it need not be the developer's.
    if "AIRFLOW_HOME" not in os.environ:
        home = tempfile.TemporaryDirectory(prefix="sensorpool-airflow-")
        os.environ["AIRFLOW_HOME"] = home.name
        config.add_cleanup(home.cleanup)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of `tests.airflow.needs` that this version of Airflow has nothing for."""
    if collection_path.suffix != ".py" or collection_path.parent != HERE:
        return None
    from tests.airflow.needs import left_out

    return True if collection_path.name in left_out() else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that were left out."""
    from tests.airflow.needs import left_out, reason

    for name, feature in left_out().items():
        terminalreporter.write_line(f"LEFT OUT {name}: {reason(feature)}")


@pytest.fixture(autouse=True)
def own_process_state() -> Iterator[None]:
    """Each test has a process of the pool for itself."""
    yield
    if (process_state := sys.modules.get("sensorpool.airflow.proof.watch.process_state")) is not None:
        process_state.pool_state.cache_clear()


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """No test has changed the environment of a task's process, but those that say so (`process_start.remember`)."""
    if (process_start := sys.modules.get("sensorpool.airflow.proof.watch.process_start")) is not None:
        process_start.forget()
    yield
    if (process_start := sys.modules.get("sensorpool.airflow.proof.watch.process_start")) is not None:
        process_start.forget()


@pytest.fixture
def set_airflow_connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def put(conn_id: str, uri: str) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", uri)

    return put


@pytest.fixture
def company_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> "Iterator[Company]":
    """Write the modules of a company's provider, of the package that a test gives; its Connection is ``acme``."""
    from tests.airflow.company_hook import installed

    package = getattr(request, "param", f"acme_{abs(hash(request.node.name))}")
    with installed(tmp_path / "site-packages", package, monkeypatch) as write:
        yield write


@pytest.fixture(scope="session")
def airflow_database(postgres_server: Server | Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a database with Airflow's own tables in it."""
    from tests.airflow.metadata import migrate

    with fresh_database(postgres_server) as url:
        yield migrate(url, tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def triggerer(
    postgres_server: Server | Elsewhere, postgres_template: str, redis_server: Server | Elsewhere
) -> Iterator["Notifier"]:
    """The notifier of a triggerer, one for a file's tests: what one test leaves must not hold up the next."""
    from tests.airflow.deployment import notifier_of_triggerer

    with notifier_of_triggerer(postgres_server, postgres_template, redis_server) as made:
        yield made


@pytest.fixture(scope="module")
def airflow_metadata(airflow_database: str) -> Iterator["Metadata"]:
    """Airflow's database, which Airflow in this process uses as well."""
    from tests.airflow.metadata import in_use

    with in_use(airflow_database) as metadata:
        yield metadata


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["World"]:
    """A bundle of DAG files, their worker and the pool."""
    from tests.airflow.dag_file_world import local_world

    with local_world(tmp_path, monkeypatch) as made:
        yield made
