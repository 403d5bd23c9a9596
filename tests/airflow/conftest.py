"""What Airflow's sensors need to be poked without Airflow: connections in the environment, and servers to ask."""

import os
import tempfile
from collections.abc import Callable

import pytest

# Airflow's own providers use what Airflow has deprecated
_THEIRS = (r"ignore:The `airflow\.utils\.operator_helpers\.\w+` attribute is deprecated",)


def pytest_configure(config: pytest.Config) -> None:
    for warning in _THEIRS:
        config.addinivalue_line("filterwarnings", warning)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"  # one of them is a listener
    # Importing airflow writes a configuration and logs into its home; it need not be the developer's.
    if "AIRFLOW_HOME" not in os.environ:
        home = tempfile.TemporaryDirectory(prefix="sensorpool-airflow-")
        os.environ["AIRFLOW_HOME"] = home.name
        config.add_cleanup(home.cleanup)


@pytest.fixture
def set_airflow_connection(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def put(conn_id: str, uri: str) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", uri)

    return put
