"""`sensorpool savings` on Airflow's own tables: the columns that it reads are there, and mean what it says."""

import datetime as dt
from collections.abc import Iterator

import pytest

pytest.importorskip("airflow")

from airflow.models.log import Log
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskreschedule import TaskReschedule
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.providers.standard.sensors.filesystem import FileSensor
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG
from airflow.utils.session import create_session
from sqlalchemy import select

from sensorpool.admin.savings import airflow_database
from sensorpool.admin.savings.airflow_database import Part, ReadOnlyDatabase
from sensorpool.admin.savings.estimate import START_SECONDS, Mode
from sensorpool.admin.savings.records import SensorTask, sensors_in
from sensorpool.admin.savings.survey import survey
from tests.airflow.metadata import Metadata
from tests.support import airflow_tables

FILE = "airflow.providers.standard.sensors.filesystem.FileSensor"
NOW = dt.datetime.now(dt.UTC)
BEGUN = NOW - dt.timedelta(hours=5)


@pytest.fixture
def database(airflow_database: str) -> Iterator[ReadOnlyDatabase]:
    made = ReadOnlyDatabase(airflow_database)
    yield made
    made.close()


def at(seconds: float) -> dt.datetime:
    return BEGUN + dt.timedelta(seconds=seconds)


def waits(dag_id: str) -> DAG:
    with DAG(dag_id, schedule=None, start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) as dag:
        FileSensor(task_id="poke", filepath="/data/{{ ds }}", poke_interval=30)
        FileSensor(task_id="again", filepath="/data/{{ ds }}", poke_interval=30, mode="reschedule")
        FileSensor.partial(task_id="mapped", poke_interval=dt.timedelta(seconds=5), mode="reschedule").expand(
            filepath=["/a"]
        )
        BashSensor(task_id="bash", bash_command="true")
        PythonSensor(task_id="function", python_callable=waits)
        EmptyOperator(task_id="none")
    return dag


def test_the_tables_of_tests_without_airflow_are_as_airflows(database: ReadOnlyDatabase) -> None:
    for table in airflow_tables.metadata.sorted_tables:
        database.read(lambda connection, table: connection.execute(select(table).limit(1)).all(), table)


def test_the_sensors_of_a_dag_that_airflow_has_serialized(
    airflow_metadata: Metadata, database: ReadOnlyDatabase
) -> None:
    airflow_metadata.add_dag(waits("savings_serialized"))
    found = sensors_in(*database.read(airflow_database.serialized, "savings_serialized"))
    assert found == {
        "poke": SensorTask("poke", FILE),
        "again": SensorTask("again", FILE, reschedule=True),
        "mapped": SensorTask("mapped", FILE, reschedule=True, poke_interval=5.0),
        "bash": SensorTask("bash", "airflow.providers.standard.sensors.bash.BashSensor"),
        "function": SensorTask("function", "airflow.providers.standard.sensors.python.PythonSensor", has_callable=True),
    }


def test_a_survey_of_rows_that_airflows_models_have_written(
    airflow_metadata: Metadata, database: ReadOnlyDatabase
) -> None:
    """As its execution API writes them: a start replaces ``start_date``, a reschedule's row begins at its end."""
    before = survey(database, 1)  # of the tasks that other tests have left
    dag = airflow_metadata.add_dag(waits("savings_rows"))
    run_id = airflow_metadata.add_run(dag, NOW)
    starts = {"poke": [(0.0, 600.5)], "again": [(n * 30.0, n * 30.0 + 2) for n in range(21)]}
    with create_session() as session:
        for task_id, spans in starts.items():
            one = session.scalars(
                select(TaskInstance).where(TaskInstance.dag_id == "savings_rows", TaskInstance.task_id == task_id)
            ).one()
            one.start_date, one.end_date = at(spans[-1][0]), at(spans[-1][1])
            one.state, one.try_number = "success", 1
            fields = RenderedTaskInstanceFields(one, False, {"filepath": "/data/savings", "fs_conn_id": "fs"})
            session.add(fields)
            for begun, over in spans:
                is_last = over == spans[-1][1]
                key = {"task_id": task_id, "dag_id": "savings_rows", "run_id": run_id, "map_index": -1, "try_number": 1}
                for event, moment in (("running", begun), ("success" if is_last else "up_for_reschedule", over)):
                    entry = Log(event=event, **key)
                    entry.dttm = at(moment)
                    session.add(entry)
                if not is_last:
                    session.add(TaskReschedule(one.id, at(over), at(over), at(over + 28)))
    found = survey(database, 1)
    costs = found.entries["savings_rows", FILE]
    assert [found.modes[mode] - before.modes[mode] for mode in (Mode.POKE, Mode.RESCHEDULE)] == [1, 1]
    assert costs.starts == 1 + 21
    assert costs.pokes == 11 + 21  # 60 s count as the interval of mode "poke", which Airflow does not keep
    assert costs.slot_seconds == pytest.approx(600.5 + 21 * 2 + 22 * START_SECONDS, abs=0.1)
    assert costs.duplicates == pytest.approx(10, abs=0.5), "one of the two pokes for both"
    assert found.unknown["condition"] == before.unknown["condition"]
    assert found.unknown["starts"] == before.unknown["starts"]


def test_its_statements_find_their_rows_by_an_index(airflow_metadata: Metadata, database: ReadOnlyDatabase) -> None:
    """Each of its statements asks for one DAG, and goes through no whole table."""
    part = Part("savings_rows", ("poke", "again"), NOW - dt.timedelta(days=1))

    def plans(connection: object) -> list[str]:
        from sqlalchemy import Connection, event, text

        assert isinstance(connection, Connection)
        seen: list[tuple[str, object]] = []
        event.listen(connection, "before_cursor_execute", lambda *each: seen.append((each[2], each[3])))
        for question in (
            airflow_database.tries,
            airflow_database.events,
            airflow_database.rendered_fields,
        ):
            list(question(connection, part))
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        found = []
        for statement, parameters in list(seen)[:4]:
            rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)  # type: ignore[arg-type]
            found.append("\n".join(row[0] for row in rows))
        return found

    made = database.read(plans)
    assert len(made) == 4
    for plan in made:
        assert "Index" in plan
        assert "Seq Scan on task_instance\n" not in plan
        assert "Seq Scan on log" not in plan
