"""Each name that a template may use without a worker has the value that a worker gets from Airflow's API."""

import datetime as dt
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.sdk import DAG, Param
from airflow.sdk.execution_time import task_runner
from airflow.utils.session import create_session
from sqlalchemy import select

from sensorpool.airflow.compat import start_from_trigger
from sensorpool.airflow.start import templates
from tests.airflow import rendering
from tests.airflow.metadata import Metadata
from tests.airflow.test_start_parse import PARAMS

pytestmark = pytest.mark.processes

PARTS = [f"{name}.{part}" for name, parts in sorted(templates._PARTS.items()) for part in sorted(parts)]
EXPRESSIONS = {
    **{name: f"{{{{ {name} }}}}" for name in sorted(templates._VALUES | set(PARTS)) if name not in ("conn", "macros")},
    "dag.default_args": "{{ dag.default_args.owner }}{{ dag.default_args['retries'] }}{{ dag.default_args.nothing }}",
    "dag.tags": "{{ dag.tags | sort }}",
    "var.value": "{{ var.value.place }}{{ var.value.get('none', 'else') }}",
    "var.json": "{{ var.json.many.a }}{{ var.json.get('none', {'a': 1}).a }}",
    "conn": "{{ conn.store.host }}{{ conn.store.login }}{{ conn.store.extra_dejson.a }}{{ conn.store.get_uri() }}",
    "macros": "{{ macros.ds_add(ds, 3) }}{{ macros.timedelta(days=1) }}{{ macros.datetime(2026, 1, 1) }}",
    "params of parts": "{{ params.parts.items() | list }}{{ params.parts }}{{ params.parts | tojson }}",
    "params": "{{ params.name }}{{ params['many'] | join('-') }}{{ params }}",
    "filters": "{{ logical_date | ds }}{{ logical_date | ts_nodash }}{{ data_interval_end | ts_nodash_with_tz }}",
}
LOST = {"in another order", "by length", "within", "an exponent", "less than nothing"}  # by the database, not Airflow
DATES = (dt.datetime(2026, 5, 1, 3, 4, 5, 678, tzinfo=dt.UTC) + dt.timedelta(days=day) for day in count())


def make_dag() -> Any:
    """Parse a DAG file."""
    defaults = {"owner": "me", "retries": 3, "nothing": None, "on_failure_callback": print}
    with DAG(
        "contexts",
        schedule=None,
        start_date=dt.datetime(2025, 3, 1, tzinfo=dt.timezone(dt.timedelta(hours=3))),
        tags=["b", "a"],
        description="of two\nlines",
        default_args=defaults,
        params={"name": Param("n", type="string"), "many": [1, "x"], "parts": {"a": {"c": 2.5, "d": None}, "bb": "ö"}},
    ) as dag:
        sensor = FileSensor(task_id="wait", filepath="x", queue="late", pool="small", start_from_trigger=False)
        sensor >> EmptyOperator(task_id="other", owner="you")
    dag.relative_fileloc = "contexts.py"
    sensor.start_from_trigger = True
    return dag


@pytest.fixture(scope="module")
def contexts(airflow_metadata: Metadata) -> Iterator[list[tuple[dict[str, Any], dict[str, Any]]]]:
    """The contexts of a worker and of a triggerer: for a run with a logical date, and for one without."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("AIRFLOW_VAR_PLACE", "here")
        context.setenv("AIRFLOW_VAR_MANY", '{"a": [1, 2]}')
        context.setenv("AIRFLOW_CONN_STORE", "postgres://me:word@host:5432/db?a=b")
        dag = airflow_metadata.add_dag(make_dag())
        yield [_contexts_of(airflow_metadata.add_run(dag, date)) for date in (next(DATES), None)]


def _contexts_of(run_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.dag_id == "contexts", DagRun.run_id == run_id)).one()
        run.conf, run.note, run.partition_key = {"a": {"b": 1}}, "a note", "p1"
    with create_session() as session:
        one = (TaskInstance.dag_id == "contexts", TaskInstance.run_id == run_id, TaskInstance.task_id == "wait")
        task = session.scalars(select(TaskInstance).where(*one)).one()
        task.state, task.try_number = "queued", 1
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.dag_id == "contexts", DagRun.run_id == run_id)).one()
        task = session.scalars(select(TaskInstance).where(*one)).one()
        ti = TaskInstanceDTO.model_validate(task, from_attributes=True)
        of_triggerer = run.dag_run_data
        serialized = SerializedDagModel.get("contexts", session=session)
        assert serialized is not None
        data = serialized.data
    comms: Any = task_runner.SUPERVISOR_COMMS
    of_worker = comms._client.task_instances.start(ti.id, os.getpid(), dt.datetime.now(dt.UTC))
    return (
        rendering.of_worker(make_dag().get_task("wait"), ti, of_worker),
        rendering.of_triggerer(data, ti, of_triggerer),
    )


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("run", [0, 1], ids=["dated", "not dated"])
def test_a_triggerer_has_the_value_of_a_worker(
    contexts: list[tuple[dict[str, Any], dict[str, Any]]], run: int, name: str
) -> None:
    expression = EXPRESSIONS[name]
    defaults = {"owner": "me", "retries": 3, "nothing": None}
    assert templates.reason_against(expression, [], defaults) is None
    worker, triggerer = contexts[run]
    ends = []
    for context, render in ((worker, _natively), (triggerer, templates.render)):
        try:
            ends.append(("renders", render(expression, context)))
        except Exception as error:
            ends.append(("fails", type(error).__name__))
    assert ends[0] == ends[1]
    assert ends[0][1] != ""
    assert run or ends[0][0] == "renders"


@pytest.mark.parametrize("name", sorted(PARAMS))
def test_params_that_the_database_changes_are_a_workers(airflow_metadata: Metadata, name: str) -> None:
    """Compared as texts: two dicts are equal in any order, and a template may ask for the first key."""
    value, is_same = PARAMS[name]
    with DAG("stored", schedule=None, params={"y": value}) as dag:
        sensor = FileSensor(task_id="wait", filepath="{{ params.y }}")
    dag.relative_fileloc = "stored.py"
    assert (start_from_trigger.changed_param(sensor) is None) is is_same
    if is_same:
        assert str(airflow_metadata.add_dag(dag).params["y"]) == str(sensor.params["y"])
    elif name in LOST:
        assert str(airflow_metadata.add_dag(dag).params["y"]) != str(sensor.params["y"])


def _natively(expression: str, context: dict[str, Any]) -> Any:
    sensor: Any = make_dag().get_task("wait")
    sensor.filepath = expression
    sensor.render_template_fields(context)
    return sensor.filepath
