"""The secrets backends in which Airflow finds Connections and Variables.

A worker asks its secrets backend (of ``[workers]``, or else of ``[secrets]``), its environment, and then the API server
by the execution API. The server asks the backend of ``[secrets]``, its own environment, and Airflow's database.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time.comms import (
    ConnectionResult,
    ErrorResponse,
    GetConnection,
    GetVariable,
    MaskSecret,
    VariableResult,
)

from sensorpool.airflow.compat import task_runtime

logger = logging.getLogger("sensorpool.airflow")

_MISSING = {GetConnection: ErrorType.CONNECTION_NOT_FOUND, GetVariable: ErrorType.VARIABLE_NOT_FOUND}
_FIELDS = ("conn_id", "conn_type", "host", "schema", "login", "password", "port", "extra")
_FORBIDDEN = "AirflowSecretsBackendAccessDenied"  # since Airflow 3.3: no further backend is asked
_NO_TABLE = "no such table"  # of a new SQLite file: no database is configured here


def lookup_name(message: Any) -> str | None:
    """Return the name of the Connection or Variable that a request looks up; None for other requests."""
    match message:
        case GetConnection():
            return f"Connection {message.conn_id}"
        case GetVariable():
            return f"Variable {message.key}"
    return None


def is_masking(message: Any) -> bool:
    """Whether a request is to mask a secret."""
    return isinstance(message, MaskSecret)


def is_missing(answer: Any) -> bool:
    """Whether an answer says that there is no such Connection or Variable."""
    return isinstance(answer, ErrorResponse) and answer.error in _MISSING.values()


def not_found(message: Any) -> ErrorResponse:
    """Return the answer that there is no such Connection or Variable."""
    return ErrorResponse(error=_MISSING[type(message)])


def as_question(message: Any, team: str | None) -> dict[str, str | None]:
    """Return a lookup as JSON, for a process that can answer it."""
    what = {"connection": message.conn_id} if isinstance(message, GetConnection) else {"variable": message.key}
    return {**what, "team": team}


def as_message(question: dict[str, Any]) -> tuple[Any, str | None]:
    """Return the lookup that `as_question` has spelt, and its team."""
    if "connection" in question:
        return GetConnection(conn_id=str(question["connection"])), question["team"]
    return GetVariable(key=str(question["variable"])), question["team"]


def as_json(answer: Any) -> dict[str, Any] | None:
    """Return the answer of `look_up` as JSON."""
    if answer is None:
        return None
    found: dict[str, Any] = answer.model_dump(mode="json", by_alias=True, exclude={"type"})
    return found


def as_answer(message: Any, found: dict[str, Any] | None) -> Any:
    """Return the answer to a lookup that `as_json` has spelt."""
    if found is None:
        return None
    return ConnectionResult(**found) if isinstance(message, GetConnection) else VariableResult(**found)


def look_up(message: Any, team: str | None) -> Any:
    """Answer a lookup as the server does, from its backends and Airflow's database; None if nothing is found.

    :param team: that of the task (`task_runtime.team_of`); None: it is of no team.
    :raises Exception: when the database does not answer, or a backend forbids the lookup.
    """
    from airflow.secrets.metastore import MetastoreBackend

    if team is not None and not task_runtime.has_teams():
        raise LookupError(f"its task is of the team {team}, and [core] multi_team is not set in the pool")
    for backend in _of_server(for_team=team is not None):
        try:
            if isinstance(message, GetVariable):
                value = _call(backend.get_variable, team, key=message.key)
                if value is not None:
                    return VariableResult(key=message.key, value=value)
            elif (connection := _call(backend.get_connection, team, conn_id=message.conn_id)) is not None:
                return ConnectionResult(**{name: getattr(connection, name) for name in _FIELDS})
        except Exception as error:
            if isinstance(backend, MetastoreBackend) or type(error).__name__ == _FORBIDDEN:
                raise
            logger.debug("%s does not answer: %s", type(backend).__name__, type(error).__name__)
    return None


def _call(ask: Callable[..., Any], team: str | None, **what: str) -> Any:
    """Ask a backend for a team, if it knows of teams, as the server does."""
    if team is None:
        return ask(**what)
    from airflow._shared.secrets_backend.base import call_secrets_backend_method

    return call_secrets_backend_method(ask, team_name=team, **what)


@cache
def _of_server(*, for_team: bool) -> tuple[Any, ...]:
    """Return the backends that the server asks, and a worker has not asked: it asks for no team."""
    from airflow.configuration import conf, ensure_secrets_loaded
    from airflow.secrets.environment_variables import EnvironmentVariablesBackend
    from airflow.secrets.metastore import MetastoreBackend

    if for_team:
        return tuple(ensure_secrets_loaded())
    if not conf.get("workers", "secrets_backend", fallback=""):  # a worker itself asks the backend of [secrets]
        return (MetastoreBackend(),)
    return tuple(found for found in ensure_secrets_loaded() if not isinstance(found, EnvironmentVariablesBackend))


def is_database_away(error: Exception) -> bool:
    """Whether an error says that Airflow's database does not answer now."""
    from sqlalchemy.exc import InterfaceError, OperationalError, TimeoutError

    return isinstance(error, OperationalError | InterfaceError | TimeoutError) and _NO_TABLE not in str(error)


def configured_backends() -> Iterator[tuple[str, str, Exception | None]]:
    """Yield the configured secrets backends in the order of lookups.

    Each has its option, its class path, and the error if it cannot be loaded here.
    """
    from airflow.configuration import conf, get_custom_secret_backend

    for section, key, of_worker in (("workers", "secrets_backend", True), ("secrets", "backend", False)):
        name = conf.get(section, key, fallback="")
        if name:
            try:
                get_custom_secret_backend(worker_mode=of_worker)
            except Exception as error:
                yield f"[{section}] {key}", name, error
            else:
                yield f"[{section}] {key}", name, None
