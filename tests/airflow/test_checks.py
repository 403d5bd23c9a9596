"""The doctor's checks of Airflow's database, in a process that is one of Airflow's servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("airflow")

_CHECK = """
from airflow.configuration import conf
from sensorpool.airflow.compat import server_process
from sensorpool.airflow.pool import checks
server_process.become_server()
for finding in checks._check_database(conf.get("database", "sql_alchemy_conn")):
    print(finding.level, finding.subject, finding.said)
"""


def told(**environment: str) -> list[str]:
    """Return what the doctor says of Airflow's database."""
    done = subprocess.run(
        [sys.executable, "-c", _CHECK],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line.startswith(("ok ", "wrong ", "warning "))]


def test_a_process_without_airflows_database_is_told_what_to_set(tmp_path: Path) -> None:
    """Airflow takes an SQLite file of its home where nothing is set; then nothing is known of its triggerers."""
    (said,) = told(AIRFLOW_HOME=str(tmp_path), AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{tmp_path}/airflow.db")
    assert said.startswith(f"wrong airflow database Connections and Variables cannot be read from sqlite:///{tmp_path}")
    assert said.endswith("set AIRFLOW__DATABASE__SQL_ALCHEMY_CONN here as Airflow has it")


def test_without_a_triggerer_tasks_would_wait_for_ever(airflow_database: str) -> None:
    found = told(AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=airflow_database)
    assert found[0] == "ok airflow database Connections and Variables can be read from here"
    assert found[1].startswith("wrong triggerer none is alive (")
    assert found[1].endswith("start `airflow triggerer`")
