"""200 DAGs that are made up: what a triggerer renders is what a worker renders; everything else goes to a worker."""

import datetime as dt
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow")

from airflow.api_fastapi.execution_api.datamodels.taskinstance import DagRun as DagRunOfServer
from airflow.api_fastapi.execution_api.datamodels.taskinstance import TIRunContext as RunOfServer
from airflow.executors.workloads.task import TaskInstanceDTO
from airflow.sdk.api.datamodels._generated import TIRunContext
from airflow.serialization.serialized_objects import DagSerialization

from sensorpool import Pool, Settings
from sensorpool.airflow.configuration import AIRFLOW_SENSORS, AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof.codec import decode
from sensorpool.airflow.start import parse, registration
from sensorpool.airflow.start.blueprint import Blueprint
from sensorpool.airflow.task import deferral, poolable
from sensorpool.model.values import Key
from tests.airflow import rendering
from tests.airflow.generated_dags import dag_of

DAGS = 200
MOMENT = dt.datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AIRFLOW_VAR_PLACE", "here")
    monkeypatch.setenv("AIRFLOW_VAR_MANY", '{"a": [1, 2]}')
    monkeypatch.setenv("AIRFLOW_CONN_STORE", "postgres://me@host:5432/db?a=b")
    pool = Pool(Settings.load(sensors_enabled=AIRFLOW_SENSORS))
    settings = AirflowSettings(enabled=True, start="scheduler")
    monkeypatch.setattr(deferral, "pool", lambda: pool)
    monkeypatch.setattr(deferral, "airflow_settings", lambda: settings)
    monkeypatch.setattr(registration, "airflow_settings", lambda: settings)
    yield
    pool.close()


def run_of(number: int) -> DagRunOfServer:
    """Return a run: every fifth has no logical date, and some have no conf."""
    date = None if number % 5 == 0 else MOMENT + dt.timedelta(days=number)
    return DagRunOfServer.model_validate(
        {
            "dag_id": f"generated{number}",
            "run_id": f"run {number}",
            "logical_date": date,
            "data_interval_start": date,
            "data_interval_end": date and date + dt.timedelta(hours=1),
            "run_after": MOMENT,
            "start_date": MOMENT,
            "end_date": None,
            "run_type": "manual",
            "state": "running",
            "conf": None if number % 7 == 0 else {"key": "of conf", "a": {"b": [1]}},
            "consumed_asset_events": [],
            "partition_key": "p" if number % 2 else None,
        }
    )


def ti_of(number: int, task_id: str) -> TaskInstanceDTO:
    return TaskInstanceDTO.model_validate(
        {
            **{"id": uuid.uuid4(), "dag_version_id": uuid.uuid4(), "dag_id": f"generated{number}", "task_id": task_id},
            **{"run_id": f"run {number}", "try_number": 1, "map_index": -1},
            **{"pool_slots": 1, "priority_weight": 1, "queue": "default"},
        }
    )


def outcome(number: int, dag: Any, on_worker: Any, serialized: dict[str, Any], task_id: str) -> str:
    """Compare the two ways of a sensor; return which it goes.

    :param dag: as the DAG processor has parsed it.
    :param on_worker: as its worker parses it.
    """
    sensor = dag.get_task(task_id)
    if not sensor.start_from_trigger:
        return "needs a worker at parse"
    run, ti = run_of(number), ti_of(number, task_id)
    native = on_worker.get_task(task_id)
    server = RunOfServer(dag_run=run, task_reschedule_count=0, max_tries=1)
    context = rendering.of_worker(native, ti, TIRunContext.model_validate_json(server.model_dump_json()))
    try:
        native.render_template_fields(context)
        error = None
    except Exception as raised:
        error = raised
    blueprint = Blueprint.read(sensor.start_trigger_args.trigger_kwargs["blueprint"])
    of_triggerer = rendering.of_triggerer(serialized, ti, run)
    try:
        rendered = registration._rendered(blueprint, of_triggerer)
    except NotPoolable:
        return "needs a worker when rendered" if error is None else "fails natively too"
    assert error is None, (blueprint.arguments, rendered, error)
    for name in blueprint.templated:
        assert decode(rendered[name]) == getattr(native, name), blueprint.arguments[name]
    key = Key(ti.dag_id, task_id, ti.run_id, -1, 1)
    try:
        prepared = registration.prepare(deferral.pool(), blueprint, key, str(ti.id), of_triggerer)
        identity = prepared.checked.identity.poke_context
    except Exception:
        identity = None
    try:
        condition = poolable.unchecked_condition_of(native, context).poke_context
    except Exception:
        condition = None
    if identity is None:
        return "needs a worker when built" if condition else "fails natively too"
    assert json.loads(identity) == condition
    return "begins without a worker"


def test_what_is_rendered_without_a_worker_is_what_a_worker_renders() -> None:
    outcomes = Counter[str]()
    for number in range(DAGS):
        dag = dag_of(number)
        for task in dag.tasks:
            parse.give_blueprint(task)
        on_worker = dag_of(number)
        serialized = json.loads(json.dumps(DagSerialization.to_dict(dag)))
        outcomes.update(
            outcome(number, dag, on_worker, serialized, task.task_id) for task in dag.tasks if task.task_id != "before"
        )
    assert outcomes.total() == 3 * DAGS
    assert outcomes["begins without a worker"] > DAGS
    assert outcomes["needs a worker at parse"] > DAGS / 2
    assert outcomes["fails natively too"] > 10
    assert outcomes["needs a worker when rendered"] + outcomes["needs a worker when built"] < DAGS / 5
