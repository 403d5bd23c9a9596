"""A few tables of Airflow's metadata database, for tests without Airflow; tests/airflow has the real ones."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import JSON, Column, DateTime, Integer, LargeBinary, MetaData, String, Table, create_engine, insert

metadata = MetaData()
_time = DateTime(timezone=True)


def _key() -> list[Column[Any]]:
    return [*(Column(name, String(250)) for name in ("dag_id", "task_id", "run_id")), Column("map_index", Integer)]


task_instance = Table(
    "task_instance",
    metadata,
    Column("id", String(36), primary_key=True),
    *_key(),
    Column("start_date", _time),
    Column("end_date", _time),
    Column("state", String(20)),
    Column("try_number", Integer),
    Column("operator", String(1000)),
    Column("trigger_id", Integer),
)
task_instance_history = Table(
    "task_instance_history",
    metadata,
    Column("task_instance_id", String(36), primary_key=True),
    *_key(),
    Column("start_date", _time),
    Column("end_date", _time),
    Column("state", String(20)),
    Column("try_number", Integer),
)
log = Table(
    "log",
    metadata,
    Column("id", Integer, primary_key=True),
    *_key(),
    Column("dttm", _time),
    Column("event", String(60)),
    Column("try_number", Integer),
)
trigger = Table("trigger", metadata, Column("id", Integer, primary_key=True), Column("classpath", String(1000)))
rendered = Table("rendered_task_instance_fields", metadata, *_key(), Column("rendered_fields", JSON))
serialized_dag = Table(
    "serialized_dag",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("dag_id", String(250)),
    Column("data", JSON),
    Column("data_compressed", LargeBinary),
    Column("created_at", _time),
)
dag_run = Table(
    "dag_run",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("dag_id", String(250)),
    Column("run_id", String(250)),
    Column("logical_date", _time),
)

FILE_SENSOR = "airflow.providers.standard.sensors.filesystem.FileSensor"


def moment(seconds: float) -> datetime:
    """Return a point in time from seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def sensor(task_id: str, op_classpath: str = FILE_SENSOR, **more: Any) -> dict[str, Any]:
    """Return a sensor as Airflow serializes it."""
    module, _, name = op_classpath.rpartition(".")
    task = {"task_id": task_id, "_is_sensor": True, "task_type": name, "_task_module": module, "reschedule": False}
    return {"__type": "operator", "__var": task | more}


def serialized(dag_id: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a DAG as Airflow serializes it."""
    return {"__version": 3, "dag": {"dag_id": dag_id, "tasks": list(tasks), **more}}


class AirflowTables:
    """A database with Airflow's tables, and rows in them. Times are seconds since 1970."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url)
        metadata.create_all(self._engine)

    def close(self) -> None:
        self._engine.dispose()

    def add(self, table: Table, **row: Any) -> None:
        """Insert a row."""
        with self._engine.begin() as connection:
            connection.execute(insert(table), row)

    def dag(self, dag_id: str, *tasks: dict[str, Any], compressed: bytes | None = None, created: float = 1) -> None:
        """Add a serialized DAG."""
        data = None if compressed else serialized(dag_id, *tasks)
        row = {"data": data} if data else {"data_compressed": compressed}
        self.add(serialized_dag, id=str(uuid4()), dag_id=dag_id, created_at=moment(created), **row)

    def one_try(
        self,
        dag_id: str,
        task_id: str,
        runs: list[tuple[float, float | None]],
        *,
        run_id: str = "run1",
        ended_by: str = "success",
        between: str = "up_for_reschedule",
        rendered_fields: dict[str, Any] | None = None,
        logged: bool = True,
        operator: str = "FileSensor",
        try_number: int = 1,
        history: bool = False,
        trigger_id: int | None = None,
        map_index: int = -1,
    ) -> None:
        """Add a try as Airflow leaves it.

        :param runs: begin and end of each start on a worker; of the last one the end may be None.
        :param between: the state in which it waited between two starts.
        """
        key = {"dag_id": dag_id, "task_id": task_id, "run_id": run_id, "map_index": map_index}
        ti_id = str(uuid4())
        # a start replaces the begin, save for a task that resumes from its deferral
        start = runs[0][0] if between == "deferred" else runs[-1][0]
        end = runs[-1][1]
        row = {"start_date": moment(start), "end_date": None if end is None else moment(end), "try_number": try_number}
        row |= {**key, "state": ended_by}
        if history:
            self.add(task_instance_history, task_instance_id=ti_id, **row)
        else:
            self.add(task_instance, id=ti_id, operator=operator, trigger_id=trigger_id, **row)
        if rendered_fields is not None:
            self.add(rendered, **key, rendered_fields=json.loads(json.dumps(rendered_fields)))
        for number, (begun, over) in enumerate(runs):
            is_last = number == len(runs) - 1
            if logged:
                self.add(log, **key, dttm=moment(begun), event="running", try_number=try_number)
                if over is not None:
                    event = ended_by if is_last else between
                    self.add(log, **key, dttm=moment(over), event=event, try_number=try_number)
