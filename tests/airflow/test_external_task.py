"""ExternalTaskSensor in the pool against the native one, whose questions Airflow's own execution API answers."""

import datetime as dt
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("airflow.providers.standard")

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk import DAG, TaskGroup, task_group, timezone
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.utils.state import State

from sensorpool.airflow.pool.adapters import task_groups
from sensorpool.airflow.pool.adapters.external_task import ExternalTasks, poke_context_of
from tests.airflow.metadata import Metadata
from tests.airflow.running import in_dag

DAY = dt.timedelta(days=1)
FIRST = timezone.datetime(2026, 11, 1)
DATES = [FIRST + number * DAY for number in range(6)]
DAGS = ("orders", "billing")
TASKS = ("a", "b", "mapped", "group.x", "group.inner.y", "group.mapped", "many.z", "group_x", "nowhere")
GROUPS = ("group", "group.inner", "many", "empty", "gone", "late", "nowhere")
STATES_OF_TASKS = [str(state) for state in State.task_states if state]
STATES_OF_RUNS = [str(state) for state in State.dag_states]
# mostly those that sensors ask for
LIKELY = ("success",) * 6 + ("failed", "skipped", "upstream_failed", "running", "removed", None)


def dag_of(dag_id: str, version: int) -> Any:
    """Return a DAG that loses one group and gets another one with its second version."""
    with DAG(dag_id, schedule=None, start_date=FIRST) as dag:
        EmptyOperator(task_id="a")
        EmptyOperator(task_id="b")
        EmptyOperator(task_id="group_x")
        PythonOperator.partial(task_id="mapped", python_callable=print).expand(op_args=[[1], [2], [3]])
        with TaskGroup("group"):
            EmptyOperator(task_id="x")
            PythonOperator.partial(task_id="mapped", python_callable=print).expand(op_args=[[1], [2]])
            with TaskGroup("inner"):
                EmptyOperator(task_id="y")
        TaskGroup("empty")
        with TaskGroup("gone" if version == 1 else "late"):
            EmptyOperator(task_id="w")

        @task_group(group_id="many")
        def many(value: int) -> None:
            EmptyOperator(task_id="z")

        many.expand(value=[1, 2])
    return dag


@pytest.fixture(scope="module")
def metadata(airflow_metadata: Metadata, seed: int) -> Metadata:
    """Some runs of some DAGs, in random states; one without its logical date, and not one of every day."""
    rng = random.Random(f"{seed} external tasks")
    for dag_id in DAGS:
        for version, dates in ((1, DATES[:3]), (2, [*DATES[3:5], None])):
            dag = airflow_metadata.add_dag(dag_of(dag_id, version))
            for date in dates:
                add_run(airflow_metadata, dag, date, rng)
        assert airflow_metadata.versions(dag_id) == 2
    return airflow_metadata


def add_run(metadata: Metadata, dag: Any, date: dt.datetime | None, rng: random.Random) -> None:
    run_id = metadata.add_run(dag, date, rng.choice(STATES_OF_RUNS))
    instances = metadata.instances(dag.dag_id, run_id)
    assert {("mapped", 2), ("group.mapped", 1), ("many.z", 1)} <= set(instances)
    happy = rng.random() < 0.5
    metadata.set_states(
        dag.dag_id,
        run_id,
        {one: "success" if happy and rng.random() < 0.9 else rng.choice(LIKELY) for one in instances},
    )
    for task_id, map_index in instances:
        if rng.random() < 0.1:
            metadata.remove(dag.dag_id, run_id, task_id, map_index)


def some_sensor(rng: random.Random) -> tuple[ExternalTaskSensor, dict[str, Any]]:
    """Return a sensor and its template context."""
    arguments: dict[str, Any] = {"external_dag_id": rng.choice([*DAGS, *DAGS, *DAGS, "nowhere"])}
    states: list[str] = list(STATES_OF_TASKS)
    match rng.randrange(4):
        case 0:
            arguments["external_task_id"] = rng.choice(TASKS)
        case 1:
            arguments["external_task_ids"] = sorted(rng.sample(TASKS, rng.randint(1, 4)))
        case 2:
            arguments["external_task_group_id"] = rng.choice(GROUPS)
        case _:
            states = list(STATES_OF_RUNS)
    rng.shuffle(states)
    states.sort(key=lambda state: rng.random() * (0.3 if state in LIKELY else 1))
    for name in ("allowed_states", "failed_states", "skipped_states"):
        number = rng.choice((0, 1, 1, 2))
        arguments[name], states = states[:number], states[number:]
    if not arguments["allowed_states"]:
        arguments["failed_states"] = [state for state in arguments["failed_states"] if state != "success"]
        arguments["skipped_states"] = [state for state in arguments["skipped_states"] if state != "success"]
    if rng.random() < 0.4:
        arguments["execution_delta"] = rng.choice((DAY, -DAY, dt.timedelta(hours=1)))
    arguments |= {"soft_fail": rng.random() < 0.4, "check_existence": rng.random() < 0.3}
    date = rng.choice(DATES).astimezone(rng.choice((dt.UTC, dt.timezone(dt.timedelta(hours=9)))))
    run = type("Run", (), {"run_after": date})()
    context = {"ti": RuntimeTaskInstance, "logical_date": rng.choice((date, date, None)), "dag_run": run}
    return in_dag(ExternalTaskSensor, **arguments), context


def native(sensor: ExternalTaskSensor, context: dict[str, Any]) -> Any:
    """Poke it as a worker does."""
    try:
        return said(sensor.poke(context))
    except Exception as error:
        return said(error)


def said(answer: Any) -> Any:
    """Say an answer so that it can be compared. What the execution API does not find, the pool says in its words."""
    if isinstance(answer, AirflowRuntimeError):
        assert answer.error.detail is not None
        return "LookupError", answer.error.detail["detail"]["detail"]["message"]
    return (type(answer).__name__, str(answer)) if isinstance(answer, Exception) else answer


def through_json(sensor: ExternalTaskSensor, context: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(poke_context_of(sensor, context)))
    return found


def test_answers_are_those_of_the_native_sensor(metadata: Metadata, rng: random.Random) -> None:
    sensors = [some_sensor(rng) for _ in range(1500)]
    contexts = [through_json(*one) for one in sensors]
    natively = [native(*one) for one in sensors]
    pooled = [said(answer) for answer in ExternalTasks.poke_many(contexts)]
    for context, one, other in zip(contexts, natively, pooled, strict=True):
        assert one == other, context
    kinds = {answer if isinstance(answer, bool) else answer[0] for answer in natively}
    assert kinds == {
        True,
        False,
        "AirflowSkipException",
        "ExternalTaskFailedError",
        "ExternalTaskGroupFailedError",
        "ExternalDagFailedError",
        "LookupError",
    }


def test_one_at_a_time_is_as_all_at_once(metadata: Metadata, rng: random.Random) -> None:
    contexts = [through_json(*some_sensor(rng)) for _ in range(50)]
    alone = [said(answer) for context in contexts for answer in ExternalTasks.poke_many([context])]
    assert alone == [said(answer) for answer in ExternalTasks.poke_many(contexts)]
    assert ExternalTasks.poke_many([]) == []


@pytest.fixture
def no_groups_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    task_groups._kept.clear()
    yield
    task_groups._kept.clear()


def test_the_number_of_statements_does_not_grow(metadata: Metadata, no_groups_known: None) -> None:
    hours = [FIRST + number * dt.timedelta(hours=1) for number in range(200)]
    with DAG("hourly", schedule=None, start_date=FIRST) as hourly, TaskGroup("group"):
        EmptyOperator(task_id="x")
    dag = metadata.add_dag(hourly)
    for hour in hours:
        run_id = metadata.add_run(dag, hour, "success")
        metadata.set_states("hourly", run_id, {("group.x", -1): "success"})

    def statements(number: int, **arguments: Any) -> int:
        sensor = in_dag(ExternalTaskSensor, external_dag_id="hourly", **arguments)
        contexts = [through_json(sensor, {"logical_date": hour}) for hour in hours[:number]]
        with metadata.statements() as seen:
            assert ExternalTasks.poke_many(contexts) == [True] * number
        return len(seen)

    assert statements(0) == 0
    assert statements(1) == statements(200) == 1
    assert statements(1, external_task_id="group.x") == statements(200, external_task_id="group.x") == 2
    assert statements(1, external_task_group_id="group") == 5  # its tasks are read, and kept
    assert statements(1, external_task_group_id="group") == statements(200, external_task_group_id="group") == 4


def test_a_group_is_that_of_the_latest_version(metadata: Metadata) -> None:
    date = FIRST

    def dag_with(*tasks: str) -> Any:
        with DAG("growing", schedule=None, start_date=FIRST) as dag, TaskGroup("group"):
            for task_id in tasks:
                EmptyOperator(task_id=task_id)
        return dag

    context = {"ti": RuntimeTaskInstance, "logical_date": date}
    sensor = in_dag(ExternalTaskSensor, external_dag_id="growing", external_task_group_id="group")

    def answer() -> Any:
        (pooled,) = ExternalTasks.poke_many([through_json(sensor, context)])
        assert said(pooled) == native(sensor, context)
        return pooled

    metadata.add_dag(dag_with("x"))
    assert answer() is False
    dag = metadata.add_dag(dag_with("x", "y"))  # no run yet: this version is rewritten where it stands
    assert metadata.versions("growing") == 1
    run_id = metadata.add_run(dag, date)
    assert metadata.instances("growing", run_id) == [("group.x", -1), ("group.y", -1)]
    metadata.set_states("growing", run_id, {("group.x", -1): "success"})
    assert answer() is False
    metadata.set_states("growing", run_id, {("group.y", -1): "success"})
    assert answer() is True
    metadata.set_states("growing", run_id, {("group.y", -1): "failed"})
    metadata.add_dag(dag_with("x"))
    assert metadata.versions("growing") == 2
    assert answer() is True


def test_a_bad_context_fails_alone(metadata: Metadata) -> None:
    sensor = in_dag(ExternalTaskSensor, external_dag_id="orders", external_task_id="a")
    good = through_json(sensor, {"logical_date": FIRST})
    bad: list[dict[str, Any]] = [
        {},
        {**good, "external_dag_id": "a\0b"},
        {**good, "external_dag_id": 7},
        {**good, "external_task_ids": ["\ud800"]},
        {**good, "external_task_ids": None, "external_task_group_id": "a\0b"},
        {**good, "logical_dates": ["2026-11-01T00:00:00"]},
        {**good, "logical_dates": ["yesterday"]},
        {**good, "allowed_states": None},
    ]
    first, *answers, last = ExternalTasks.poke_many([good, *bad, good])
    assert isinstance(first, bool)
    assert first is last
    assert [type(answer).__name__ for answer in answers] == [
        "KeyError",
        "ValueError",
        "ValueError",
        "UnicodeEncodeError",
        "ValueError",
        "ValueError",
        "ValueError",
        "TypeError",
    ]


def test_a_dag_that_cannot_be_read_fails_those_who_wait_for_it(
    metadata: Metadata, no_groups_known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.serialized_dag import SerializedDagModel

    whole = SerializedDagModel.dag.fget

    def dag(row: Any) -> Any:
        if row.dag_id == "billing":
            raise ValueError("invalid or missing serialized DAG data")
        return whole(row)

    contexts = [
        through_json(
            in_dag(ExternalTaskSensor, external_dag_id=dag_id, external_task_group_id="group"), {"logical_date": FIRST}
        )
        for dag_id in DAGS
    ]
    expected = said(ExternalTasks.poke_many(contexts)[0])
    task_groups._kept.clear()
    with monkeypatch.context() as patch:
        patch.setattr(SerializedDagModel, "dag", property(dag))
        orders, billing = ExternalTasks.poke_many(contexts)
    assert said(orders) == expected
    assert said(billing) == ("ValueError", "invalid or missing serialized DAG data")
    assert not isinstance(ExternalTasks.poke_many(contexts)[1], ValueError)


def test_groups_kept_are_bounded(metadata: Metadata, no_groups_known: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_groups, "KEPT", 1)
    sensors = [in_dag(ExternalTaskSensor, external_dag_id=dag_id, external_task_group_id="group") for dag_id in DAGS]
    contexts = [through_json(sensor, {"logical_date": FIRST}) for sensor in sensors]
    expected = [said(native(sensor, {"ti": RuntimeTaskInstance, "logical_date": FIRST})) for sensor in sensors]
    for _ in range(2):
        assert [said(answer) for answer in ExternalTasks.poke_many(contexts)] == expected
        assert len(task_groups._kept) == 1


def test_airflow_does_not_check_existence_in_poke(metadata: Metadata) -> None:
    """So it is no part of the condition: should this fail one day, it is."""
    sensor = in_dag(ExternalTaskSensor, external_dag_id="nowhere", external_task_id="a", check_existence=True)
    assert sensor.poke({"ti": RuntimeTaskInstance, "logical_date": FIRST}) is False
