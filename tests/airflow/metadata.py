"""Airflow's own database, a real one, and what a task hears from it: by the execution API, in this process."""

import asyncio
import datetime as dt
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from airflow import settings
from airflow.api_fastapi.execution_api.app import InProcessExecutionAPI
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.sdk.api.client import Client, ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete, event, make_url, select, text, update

from harness.until import until
from tests.airflow.versions import SerializedDAG, answer

CONNECTION = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
BUNDLE = "tests"


def migrate(url: str, home: Path) -> str:
    """Make Airflow's tables in an empty database; return the URL by which Airflow calls it."""
    url = make_url(url).set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**os.environ, CONNECTION: url, "AIRFLOW_HOME": str(home)},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    return url


@contextmanager
def in_use(url: str) -> Iterator["Metadata"]:
    """Have Airflow in this process use a database, in which no DAG of another module's tests is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONNECTION, url)
        _connect()
        with create_session() as session:
            session.execute(text("TRUNCATE dag CASCADE"))
        with _answered():
            yield Metadata()
    _connect()


@contextmanager
def _answered() -> Iterator[None]:
    """Have what tasks ask answered."""
    transport = InProcessExecutionAPI().transport
    loop = transport.app.loop
    client = Client(base_url=None, token="", dry_run=True, transport=transport)
    client.base_url = "http://in-process.invalid./"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_runner, "SUPERVISOR_COMMS", _Comms(client), raising=False)
        yield
    client.close()
    # Airflow stops the loop with the transport's last reference, and does not close it.
    del client, transport
    gc.collect()
    if loop.is_running():  # Airflow 3.1
        loop.call_soon_threadsafe(loop.stop)
        until("the end of its loop", lambda: not loop.is_running())
    loop.close()


def _connect() -> None:
    settings.dispose_orm(do_log=False)
    settings.configure_vars()
    settings.configure_orm()


class _Comms:
    """The supervisor at the other end of a task's questions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, msg: Any) -> Any:
        """Answer as the supervisor does; for errors see its ``handle_requests``, and ``_from_frame`` of the comms."""
        try:
            return answer(self._client, msg)
        except ServerResponseError as error:
            detail = {
                "status_code": error.response.status_code,
                "message": str(error),
                "detail": error.response.json(),
            }
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail)) from error

    async def asend(self, msg: Any) -> Any:
        """Answer a trigger."""
        return await asyncio.to_thread(self.send, msg)


class Metadata:
    """Rows in Airflow's database."""

    def __init__(self) -> None:
        self._numbers = count(1)
        with create_session() as session:
            if session.get(DagBundleModel, BUNDLE) is None:
                session.add(DagBundleModel(name=BUNDLE))

    def add_dag(self, dag: Any) -> SerializedDAG:
        """Write a DAG as the DAG processor does, as a new version if it is there in another form."""
        with create_session() as session:
            SerializedDAG.bulk_write_to_db(BUNDLE, None, [dag], session=session)
            SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name=BUNDLE, session=session)
        with create_session() as session:
            found = SerializedDagModel.get_dag(dag.dag_id, session=session)
            assert found is not None
            return found

    def add_run(self, dag: SerializedDAG, logical_date: dt.datetime | None, state: str = "running") -> str:
        """Add a run with its task instances; return its id."""
        run_id = f"run{next(self._numbers)}"
        with create_session() as session:
            dag.create_dagrun(
                run_id=run_id,
                logical_date=logical_date,
                data_interval=None if logical_date is None else (logical_date, logical_date),
                run_after=logical_date or dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
                run_type=DagRunType.MANUAL,
                triggered_by=DagRunTriggeredByType.TEST,
                state=DagRunState(state),
                session=session,
            )
        return run_id

    def instances(self, dag_id: str, run_id: str) -> list[tuple[str, int]]:
        """Return the tasks and map indexes of a run."""
        query = select(TaskInstance.task_id, TaskInstance.map_index).where(
            TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id
        )
        with create_session() as session:
            return sorted((task_id, map_index) for task_id, map_index in session.execute(query))

    def set_states(self, dag_id: str, run_id: str, states: Mapping[tuple[str, int], str | None]) -> None:
        """Set states of task instances."""
        with create_session() as session:
            for (task_id, map_index), state in states.items():
                session.execute(
                    update(TaskInstance).where(*_one(dag_id, run_id, task_id, map_index)).values(state=state)
                )

    def remove(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> None:
        """Remove a task instance."""
        with create_session() as session:
            session.execute(delete(TaskInstance).where(*_one(dag_id, run_id, task_id, map_index)))

    def set_run_state(self, dag_id: str, run_id: str, state: str) -> None:
        """Set the state of a run, and no task's."""
        with create_session() as session:
            one = (DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            session.execute(update(DagRun).where(*one).values({DagRun._state: state}))

    def versions(self, dag_id: str) -> int:
        """Return how many versions there are of a DAG."""
        with create_session() as session:
            return len(session.scalars(select(DagVersion).where(DagVersion.dag_id == dag_id)).all())

    @contextmanager
    def statements(self) -> Iterator[list[tuple[str, Any]]]:
        """Collect the statements that Airflow's engine runs, with their parameters."""
        seen: list[tuple[str, Any]] = []

        def see(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
            seen.append((statement, parameters))

        event.listen(settings.engine, "before_cursor_execute", see)
        try:
            yield seen
        finally:
            event.remove(settings.engine, "before_cursor_execute", see)


def _one(dag_id: str, run_id: str, task_id: str, map_index: int) -> tuple[Any, ...]:
    return (
        TaskInstance.dag_id == dag_id,
        TaskInstance.run_id == run_id,
        TaskInstance.task_id == task_id,
        TaskInstance.map_index == map_index,
    )
