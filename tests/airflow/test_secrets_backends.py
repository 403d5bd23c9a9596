"""Where Connections and Variables are found: what the pool answers is what the API server answers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.configuration import DEFAULT_SECRETS_SEARCH_PATH
from airflow.models.connection import Connection
from airflow.models.variable import Variable
from airflow.sdk.api.datamodels._generated import ConnectionResponse
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetConnection, GetVariable, MaskSecret
from airflow.sdk.execution_time.secrets import DEFAULT_SECRETS_SEARCH_PATH_WORKERS
from airflow.utils.session import create_session
from sqlalchemy import delete
from sqlalchemy.exc import OperationalError, ProgrammingError

from sensorpool.airflow.compat import features, secrets_backends
from sensorpool.airflow.pool import checks
from tests.airflow.metadata import Metadata
from tests.airflow.needs import needs
from tests.airflow.versions import answer, clear_secrets_backends_cache

LOCAL = "airflow.secrets.local_filesystem.LocalFilesystemBackend"


@pytest.fixture(autouse=True)
def no_backend_is_kept() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    """Have configuration looked at anew, as in another process."""
    clear_secrets_backends_cache()
    secrets_backends._of_server.cache_clear()


@pytest.fixture
def rows(airflow_metadata: Metadata) -> Iterator[Any]:
    """A function that adds rows to Airflow's database."""

    def add(*made: Any) -> None:
        with create_session() as session:
            session.add_all(made)

    yield add
    with create_session() as session:
        session.execute(delete(Connection))
        session.execute(delete(Variable))


@pytest.fixture
def told_by_the_api(airflow_metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """A function that returns what a task on a worker hears; nothing of a task is in the process of the server."""
    client = task_runner.SUPERVISOR_COMMS._client  # type: ignore[attr-defined]
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS")
    return lambda message: answer(client, message)


@pytest.mark.parametrize(
    "made",
    [
        {
            "conn_type": "http",
            "host": "h",
            "login": "l",
            "password": "p",
            "schema": "s",
            "port": 8,
            "extra": '{"a": 1}',
        },
        {"conn_type": "fs"},
        {"uri": "postgres://me:p%40ss@db:5432/lake?sslmode=require"},
    ],
    ids=["all", "bare", "uri"],
)
def test_a_connection_is_told_as_by_the_api_server(rows: Any, told_by_the_api: Any, made: dict[str, Any]) -> None:
    rows(Connection(conn_id="lake", **made))
    message = GetConnection(conn_id="lake")
    found = secrets_backends.look_up(message, None)
    assert found.model_dump() == told_by_the_api(message).model_dump()
    fields = {field.alias or name for name, field in ConnectionResponse.model_fields.items()}
    assert fields == set(secrets_backends._FIELDS)


@pytest.mark.parametrize("value", ["monday", "", '{"a": 1}'])
def test_a_variable_is_told_as_by_the_api_server(rows: Any, told_by_the_api: Any, value: str) -> None:
    rows(Variable(key="day", val=value))
    message = GetVariable(key="day")
    assert secrets_backends.look_up(message, None).model_dump() == told_by_the_api(message).model_dump()


@pytest.mark.parametrize(
    "message", [GetConnection(conn_id="no"), GetVariable(key="no")], ids=["Connection", "Variable"]
)
def test_what_is_not_there_is_told_as_by_the_api_server(rows: Any, told_by_the_api: Any, message: Any) -> None:
    assert secrets_backends.look_up(message, None) is None
    assert secrets_backends.not_found(message).error == told_by_the_api(message).error
    assert secrets_backends.is_missing(told_by_the_api(message))


def test_messages_are_known() -> None:
    assert secrets_backends.lookup_name(GetConnection(conn_id="lake")) == "Connection lake"
    assert secrets_backends.lookup_name(GetVariable(key="day")) == "Variable day"
    assert secrets_backends.lookup_name(MaskSecret(value="x")) is None
    assert secrets_backends.is_masking(MaskSecret(value="x"))


def test_the_searches_of_worker_and_server_are_these() -> None:
    """After its secrets backend a worker asks its environment and the server; that its own, and the database."""
    ends = [
        [path.rpartition(".")[2] for path in paths]
        for paths in (
            DEFAULT_SECRETS_SEARCH_PATH_WORKERS,
            DEFAULT_SECRETS_SEARCH_PATH,
        )
    ]
    assert ends == [
        ["EnvironmentVariablesBackend", "ExecutionAPISecretsBackend"],
        ["EnvironmentVariablesBackend", "MetastoreBackend"],
    ]


def backend(monkeypatch: pytest.MonkeyPatch, option: str, path: Path, connections: dict[str, str]) -> None:
    """Configure a secrets backend."""
    path.write_text(json.dumps(connections))
    forget()
    monkeypatch.setenv(f"AIRFLOW__{option}", LOCAL)
    monkeypatch.setenv(f"AIRFLOW__{option}_KWARGS", json.dumps({"connections_file_path": str(path)}))


def test_the_servers_backend_is_asked_where_the_workers_have_another(
    rows: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows(Connection(conn_id="both", conn_type="http", host="database"))
    backend(monkeypatch, "SECRETS__BACKEND", tmp_path / "server.json", {"both": "http://file"})
    message = GetConnection(conn_id="both")
    # a worker has asked the file itself, and not found it
    assert secrets_backends.look_up(message, None).host == "database"
    backend(monkeypatch, "WORKERS__SECRETS_BACKEND", tmp_path / "workers.json", {})
    assert secrets_backends.look_up(message, None).host == "file"


def test_a_database_that_is_away_is_known() -> None:
    away = OperationalError("SELECT", {}, Exception("connection refused"))
    assert secrets_backends.is_database_away(away)
    assert not secrets_backends.is_database_away(OperationalError("SELECT", {}, Exception("no such table: connection")))
    assert not secrets_backends.is_database_away(ProgrammingError("SELECT", {}, Exception("relation does not exist")))
    assert not secrets_backends.is_database_away(ValueError("no key"))


# what doctor says


def said() -> list[tuple[str, str]]:
    return [(str(finding.level), finding.said) for finding in checks.check_secrets()]


def test_doctor_says_where_connections_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rest = "the environment, Airflow's database"
    assert said() == [("ok", f"the pool looks for Connections and Variables as workers do: {rest}")]
    backend(monkeypatch, "WORKERS__SECRETS_BACKEND", tmp_path / "workers.json", {})
    assert said() == [
        ("ok", f"the pool looks for Connections and Variables as workers do: [workers] secrets_backend {LOCAL}, {rest}")
    ]


def test_doctor_names_a_backend_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND", "not_installed.Backend")
    (level, text), *_ = said()
    assert level == "wrong"
    assert "[workers] secrets_backend not_installed.Backend cannot be loaded here: " in text


def test_doctor_says_that_workers_and_server_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    backend(monkeypatch, "WORKERS__SECRETS_BACKEND", tmp_path / "workers.json", {})
    backend(monkeypatch, "SECRETS__BACKEND", tmp_path / "server.json", {})
    ((level, text),) = said()
    assert level == "ok"
    assert f"[workers] secrets_backend {LOCAL}, the environment, [secrets] backend {LOCAL}, Airflow's database" in text


@needs(features.TEAM_OF_RUN)
def test_doctor_says_what_teams_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(checks.check_teams()) == []
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    (finding,) = checks.check_teams()
    assert "a task waits with the Connections and Variables of its team" in finding.said
