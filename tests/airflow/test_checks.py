"""The doctor's checks of Airflow's database, in a process that is one of Airflow's servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("airflow")

from sqlalchemy import create_engine, text

from sensorpool import Settings
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.pool import checks
from sensorpool.errors import SettingsError

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
    place = f"the sqlite database {tmp_path}/airflow.db: "
    assert said.startswith(f"wrong airflow database Connections and Variables cannot be read from {place}")
    assert said.endswith("set AIRFLOW__DATABASE__SQL_ALCHEMY_CONN here as Airflow has it")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql+psycopg2://airflow:hush@db:5432/meta", "the postgresql database meta at db"),
        ("no url", "the database of [database] sql_alchemy_conn, which is no URL"),
    ],
)
def test_a_place_has_no_password(url: str, place: str) -> None:
    assert checks._place_of(url) == place


def test_a_gate_of_a_class_that_is_not_enabled_is_told() -> None:
    ours = AirflowSettings.load(gates_enabled="acme.sensors:Newest, acme.sensors.Other")
    found = checks.check_gates(ours, Settings.load(sensors_enabled="acme.sensors.Newest"))
    assert [finding.said for finding in found] == [
        "acme.sensors.Other is in gates_enabled, and runs natively: list it in sensors_enabled, too"
    ]


def test_a_gate_takes_no_pattern() -> None:
    with pytest.raises(SettingsError, match=r"^\[sensorpool\] gates_enabled: 'acme\.\*' is not a class path"):
        AirflowSettings.load(gates_enabled="acme.*")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("resume_hold", "10s", "must be a number of seconds, without a unit, from 0 to .* \\(it is '10s'\\)"),
        ("dag_bundle_processes", "101", "must be a whole number, from 1 to 100 "),
        ("start", "schedule", "input should be 'worker' or 'scheduler' "),
        ("strat", "scheduler", "there is no such setting"),
    ],
)
def test_a_wrong_option_is_told_with_what_it_takes(option: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError, match=rf"^\[sensorpool\] {option}: {says}"):
        AirflowSettings.load(**{option: value})


def test_without_a_triggerer_tasks_would_wait_for_ever(airflow_database: str) -> None:
    engine = create_engine(airflow_database)
    with engine.begin() as connection:  # other tests of this process have triggerers
        connection.execute(text("UPDATE job SET latest_heartbeat = latest_heartbeat - interval '1 hour'"))
    engine.dispose()
    found = told(AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=airflow_database)
    assert found[0] == "ok airflow database Connections and Variables can be read from here"
    assert found[1].startswith("wrong triggerer none is alive (")
    assert found[1].endswith("start `airflow triggerer`")


def test_a_pool_in_this_process_alone_is_no_pool_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CELERY__BROKER_URL", "redis://:hush@broker.example:6380/0")
    [found] = checks.check_redis(Settings.load(redis_url="memory://"))
    assert found.level == "wrong"
    assert "(redis://broker.example:6380/2, on the Redis of [celery] broker_url)" in found.said
    monkeypatch.setenv("AIRFLOW__CELERY__BROKER_URL", "amqp://[odd")
    [found] = checks.check_redis(Settings.load(redis_url="memory://"))
    assert "(redis://redis:6379/2)" in found.said
    assert not list(checks.check_redis(Settings.load(redis_url="redis://elsewhere:6379/2")))
