"""Instances whose task is gone from Airflow end; instances that Airflow does not know do not."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("airflow")

from airflow.api.common.delete_dag import delete_dag
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import delete, select, text, update

from sensorpool import Pool, Settings
from sensorpool.airflow.pool import reconcile
from sensorpool.model.states import State
from sensorpool.model.values import Key, Registration
from tests.airflow.metadata import Metadata
from tests.airflow.running import Flag

SENSOR = "sensorpool.sensors.TimeSensor"
DAG_ID = "reconciled"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Waiting:
    """A task that waits, and another one of the same DAG."""

    def __init__(self, pool: Pool, metadata: Metadata) -> None:
        self._pool, self.metadata = pool, metadata
        with DAG(DAG_ID, schedule=None) as dag:
            Flag(task_id="wait", flag="x")
        self.run_id = metadata.add_run(metadata.add_dag(dag), None)
        self.task = (TaskInstance.dag_id == DAG_ID, TaskInstance.run_id == self.run_id)
        with create_session() as session:
            session.execute(update(TaskInstance).where(*self.task).values(state="deferred", try_number=1))
            task = session.scalars(select(TaskInstance).where(*self.task)).one()
            session.add(Log("running", task))  # as the API server does where a task starts
            self.ti_id = str(task.id)
        self.instance_id = self.register(Key(DAG_ID, "wait", self.run_id, -1, 1), self.ti_id)

    def register(self, key: Key, external_id: str) -> int:
        """Have an instance wait."""
        target = {"target_time": "2100-01-01T00:00:00Z"}
        wait = Registration(sensor=SENSOR, poke_context=target, key=key, external_id=external_id)
        return self._pool.register_many([wait], try_out=False)[0].id

    def reconcile(self) -> None:
        """Do one round of rescue."""
        worker: Any = SimpleNamespace(database=self._pool.database, settler=self._pool.settler)
        reconcile.reconcile(worker)

    def began_before(self, instance_id: int, by: timedelta) -> None:
        """Have an instance have begun some time ago."""
        earlier = text("UPDATE sensor_instance SET start_date = start_date - :by WHERE id = :id")
        with self._pool.database.engine.begin() as connection:
            connection.execute(earlier, {"by": round(by.total_seconds() * 1000), "id": instance_id})

    def instances(self) -> list[int]:
        """Return the ids of all instances."""
        with self._pool.database.engine.begin() as connection:
            return list(connection.scalars(text("SELECT id FROM sensor_instance")))

    def state(self, instance_id: int | None = None) -> State | None:
        """Return how an instance is doing."""
        one = instance_id or self.instance_id
        return self._pool.wait([one], 0).get(one)


@pytest.fixture
def waiting(
    postgres_database: str, redis_url: str, airflow_metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Waiting]:
    monkeypatch.setattr(reconcile, "YOUNG", -60_000)
    pool = Pool(Settings.load(database_url=postgres_database, redis_url=redis_url))
    yield Waiting(pool, airflow_metadata)
    pool.close()


def delete_its_run(waiting: Waiting) -> None:
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.dag_id == DAG_ID, DagRun.run_id == waiting.run_id))


def delete_its_try(waiting: Waiting) -> None:
    with create_session() as session:
        session.execute(delete(TaskInstance).where(*waiting.task))


def set_state(state: str) -> Callable[[Waiting], None]:
    return lambda waiting: waiting.metadata.set_states(DAG_ID, waiting.run_id, {("wait", -1): state})


def next_try(waiting: Waiting) -> None:
    with create_session() as session:
        task = session.scalars(select(TaskInstance).where(*waiting.task)).one()
        task.prepare_db_for_next_try(session)


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (lambda _: delete_dag(DAG_ID), True),
        (delete_its_run, True),
        (delete_its_try, True),
        (next_try, True),
        (set_state("success"), True),
        (set_state("removed"), True),  # the task is no more in its DAG
        (set_state("scheduled"), False),
        (lambda _: None, False),
    ],
    ids=["DAG deleted", "run deleted", "try deleted", "next try", "marked", "task removed", "resumes", "waits"],
)
def test_an_instance_ends_in_one_round_once_its_task_is_gone(
    waiting: Waiting, change: Callable[[Waiting], None], ends: bool
) -> None:
    change(waiting)
    waiting.reconcile()
    assert waiting.state() == (State.CANCELLED if ends else State.SENSING)


def many(
    dag_id: str, *entities: Any, action: str = "delete", event: str = "bulk_dag_runs", run_id: str | None = None
) -> dict[str, Any]:
    """Return the entry of a request that is about many runs or tasks."""
    body = {"actions": [{"action": action, "entities": entities}], "method": "PATCH"}
    return {"event": event, "dag_id": dag_id, "run_id": run_id, "extra": json.dumps(body)}


ENTRIES: dict[str, dict[str, Any]] = {
    "its run": {"event": "delete_dag_run", "dag_id": DAG_ID, "run_id": "gone"},
    "its DAG": {"event": "delete_dag", "dag_id": DAG_ID},
    "its DAG, by the command": {"event": "cli_dag_delete", "dag_id": DAG_ID},
    "many runs of a DAG": many(DAG_ID, "other", "gone"),
    "many runs": many("~", {"dag_run_id": "other"}, {"dag_run_id": "gone", "dag_id": DAG_ID}),
    "its task": many(DAG_ID, {"task_id": "wait", "map_index": -1}, run_id="gone", event="bulk_task_instances"),
    "its task, of many": many(
        *("~", {"task_id": "wait", "dag_id": DAG_ID, "dag_run_id": "gone"}),
        run_id="~",
        event="bulk_task_instances",
    ),
}
OTHERS: dict[str, dict[str, Any]] = {
    "another run": {"event": "delete_dag_run", "dag_id": DAG_ID, "run_id": "gone too"},
    "another DAG": {"event": "delete_dag", "dag_id": "another"},
    "nothing": {"event": "patch_dag_run", "dag_id": DAG_ID, "run_id": "gone"},
    "runs of another DAG": many("another", "gone"),
    "many runs of others": many(
        "~", {"dag_run_id": "gone", "dag_id": "another"}, {"dag_run_id": "x", "dag_id": DAG_ID}
    ),
    "marks of many runs": many("~", {"dag_run_id": "gone", "dag_id": DAG_ID}, action="update"),
    "another task": many(DAG_ID, "another", run_id="gone", event="bulk_task_instances"),
    "no body": {"event": "bulk_dag_runs", "dag_id": DAG_ID, "extra": '"gone"'},
    "a cut body": {"event": "bulk_dag_runs", "dag_id": DAG_ID, "extra": '{"actions": ["gone"'},
    "odd bodies": many(DAG_ID, ["gone"], None, {"dag_run_id": ["gone"]}),
    "what was before it": {"event": "delete_dag_run", "dag_id": DAG_ID, "run_id": "gone", "dttm": LONG_AGO},
}


@pytest.mark.parametrize(
    ("entry", "ends"),
    [*((entry, True) for entry in ENTRIES.values()), *((entry, False) for entry in OTHERS.values())],
    ids=[*ENTRIES, *OTHERS],
)
def test_a_task_that_began_without_a_worker_ends_where_the_audit_log_has_its_deletion(
    waiting: Waiting, entry: dict[str, Any], ends: bool
) -> None:
    """No worker has entered there that it ran."""
    gone = waiting.register(Key(DAG_ID, "wait", "gone", -1, 1), str(uuid4()))
    made = Log(task_instance=None, owner="airflow", **{name: entry[name] for name in entry if name != "dttm"})
    made.dttm = entry.get("dttm", made.dttm)
    with create_session() as session:
        session.add(made)
    waiting.reconcile()
    with create_session() as session:  # other tests have the same DAG
        session.execute(delete(Log).where(Log.event == entry["event"]))
    assert waiting.state(gone) == (State.CANCELLED if ends else State.SENSING)
    assert waiting.state() == State.SENSING, "that it ran says nothing of an end"


@pytest.mark.parametrize("task_id", ["wait", "another"])
def test_what_airflow_never_heard_of_is_left_alone(waiting: Waiting, task_id: str) -> None:
    """Of another deployment, or not of Airflow: though this one knows others that wait."""
    foreign = waiting.register(Key(DAG_ID, task_id, "another run", -1, 1), str(uuid4()))
    later = waiting.register(Key(DAG_ID, "wait", waiting.run_id, 3, 1), str(uuid4()))
    no_uuid = waiting.register(Key(DAG_ID, "elsewhere", waiting.run_id, -1, 1), "order 66")
    waiting.reconcile()
    assert {waiting.state(one) for one in (foreign, later, no_uuid)} == {State.SENSING}


def test_a_deletion_that_was_before_a_try_is_not_its_end(waiting: Waiting) -> None:
    """Another deployment has a DAG of that name, whose task began after this one's was deleted."""
    deleted = Log("delete_dag", dag_id="elsewhere", task_instance=None)
    deleted.dttm = datetime.now(UTC) - timedelta(hours=2)
    with create_session() as session:
        session.add(deleted)
    try:
        before = waiting.register(Key("elsewhere", "wait", "before", -1, 1), str(uuid4()))
        after = waiting.register(Key("elsewhere", "wait", "after", -1, 1), str(uuid4()))
        waiting.began_before(before, timedelta(hours=3))
        waiting.reconcile()
        assert (waiting.state(before), waiting.state(after)) == (State.CANCELLED, State.SENSING)
    finally:
        with create_session() as session:
            session.execute(delete(Log).where(Log.dag_id == "elsewhere"))


ROWS = 60_000


def test_a_large_audit_log_costs_nothing(waiting: Waiting) -> None:
    """Of a log that is full of deletions and of runs of these DAGs, only entries about these runs are read."""
    runs = [(f"foreign{number % 7}", f"run{number}") for number in range(50)]
    for number, (dag_id, run_id) in enumerate(runs):
        waiting.register(Key(dag_id, f"wait{number}", run_id, -1, 1), str(uuid4()))
    with create_session() as session:
        session.execute(
            text(
                "INSERT INTO log (dttm, event, dag_id, task_id, run_id, map_index, try_number, extra)"
                " SELECT now(), CASE number % 3 WHEN 0 THEN 'delete_dag_run' ELSE 'running' END,"
                " CASE number % 3 WHEN 0 THEN 'many' ELSE 'foreign' END || number % 7,"
                " CASE number % 3 WHEN 0 THEN NULL ELSE 'work' END, 'x' || number, -1, 1, '{}'"
                " FROM generate_series(1, :rows) AS number"
            ),
            {"rows": ROWS},
        )
    try:
        with create_session() as session:
            session.execute(text("ANALYZE log"))
        with waiting.metadata.statements() as statements:
            waiting.reconcile()
        assert {waiting.state(row) for row in waiting.instances()} == {State.SENSING}
        asked = [each for each in statements if "FROM log" in each[0]]
        assert asked
        with create_session() as session:
            read = [rows_read(session, *each) for each in asked]
        assert sum(read) < 2_000
    finally:
        with create_session() as session:
            session.execute(delete(Log).where(Log.dag_id.regexp_match("^(many|foreign)")))


def rows_read(session: Any, statement: str, parameters: Any) -> int:
    """Return how many rows of the audit log a statement reads, those that it leaves out included."""
    connection = session.connection().connection.cursor()
    connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    (plans,) = connection.fetchone()

    def read(plan: Any) -> int:
        here = (
            plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        )
        below = sum(map(read, plan.get("Plans", ())))
        return int(here * plan["Actual Loops"] if "Scan" in plan["Node Type"] else 0) + below

    return read(plans[0]["Plan"])
