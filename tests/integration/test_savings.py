"""`sensorpool savings` on an Airflow's database: what it reads, what it refuses, and that it only reads."""

import json
import os
import pty
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from harness.servers import Elsewhere, Server, fresh_database
from sensorpool.admin.savings import airflow_database as read_only
from sensorpool.admin.savings.airflow_database import ReadOnlyDatabase
from sensorpool.admin.savings.estimate import START_SECONDS, Costs, Mode
from sensorpool.admin.savings.survey import Found, survey
from sensorpool.cli.main import main
from sensorpool.errors import Unreachable
from tests.support import airflow_tables
from tests.support.airflow_tables import FILE_SENSOR, AirflowTables, sensor, serialized
from tests.support.pages import SHELLS, blocks, command_lines

NOW = time.time()
HOUR = 3_600.0
BEGUN = NOW - 10 * HOUR
WAITED = HOUR + 10  # so that no rounding of a database takes a poke away
WAIT = [(BEGUN, BEGUN + WAITED)]  # in mode "poke"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of each kind that Airflow has."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/air flow?.db".replace("?", "%3F")
        return
    server: Server | Elsewhere = request.getfixturevalue(
        {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
    )
    with fresh_database(server) as made:
        yield made


@pytest.fixture
def airflow(url: str) -> Iterator[AirflowTables]:
    """Airflow's tables, empty."""
    tables = AirflowTables(url)
    yield tables
    tables.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[AirflowTables]:
    """Airflow's tables in SQLite, for what is the same with each kind of database."""
    tables = AirflowTables(f"sqlite:///{tmp_path}/airflow.db")
    yield tables
    tables.close()


def surveyed(url: str, days: float = 30) -> Found:
    database = ReadOnlyDatabase(url)
    try:
        return survey(database, days)
    finally:
        database.close()


def costs(found: Found, dag_id: str = "etl", path: str = FILE_SENSOR) -> Costs:
    return found.entries[dag_id, path]


def savings(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["savings", *arguments], env=environment)


def test_each_mode_is_read_from_what_airflow_records(airflow: AirflowTables) -> None:
    airflow.dag("etl", sensor("poke"), sensor("reschedule", reschedule=True), sensor("defer", "acme.Sensor"))
    airflow.one_try("etl", "poke", WAIT)
    starts = [(BEGUN + 600 * n, BEGUN + 600 * n + 3) for n in range(5)]
    airflow.one_try("etl", "reschedule", starts)
    airflow.one_try("etl", "defer", [(BEGUN, BEGUN + 2), (BEGUN + HOUR, BEGUN + HOUR + 1)], between="deferred")
    found = surveyed(airflow.url)
    assert found.modes == {Mode.POKE: 1, Mode.RESCHEDULE: 1, Mode.DEFERRED: 1}
    both, deferred = costs(found), costs(found, path="acme.Sensor")
    assert both.slot_seconds == pytest.approx(WAITED + 15 + 6 * START_SECONDS, abs=0.1)
    assert both.starts == 1 + 5
    assert both.pokes == 61 + 5
    assert (deferred.starts, deferred.pokes) == (2, 0)
    assert deferred.slot_seconds == pytest.approx(3 + 2 * START_SECONDS, abs=0.1)
    assert (found.task_instances, found.unknown["starts"], found.unknown["interval"]) == (3, 0, 1)


def test_pokes_of_one_condition_are_duplicates_across_dags(airflow: AirflowTables) -> None:
    fields = {"filepath": "/data/x", "fs_conn_id": "fs"}
    for dag_id in ("a", "b", "c"):
        airflow.dag(dag_id, sensor("wait"))
        other = {"filepath": "/data/y"} if dag_id == "c" else fields
        airflow.one_try(dag_id, "wait", WAIT, rendered_fields=other)
    found = surveyed(airflow.url)
    assert sorted(round(costs(found, dag_id).duplicates) for dag_id in "abc") == [0, 0, 60]
    assert sum(costs(found, dag_id).pool_pokes for dag_id in "abc") == pytest.approx(61 + 1 + 61)
    assert found.unknown["condition"] == 0


def test_the_logical_date_of_its_run_is_part_of_what_an_external_task_sensor_waits_for(airflow: AirflowTables) -> None:
    path = "airflow.providers.standard.sensors.external_task.ExternalTaskSensor"
    for dag_id, date in (("a", 1), ("b", 1), ("c", 2)):
        airflow.dag(dag_id, sensor("wait", path))
        airflow.add(airflow_tables.dag_run, dag_id=dag_id, run_id="run1", logical_date=airflow_tables.moment(date))
        airflow.one_try(dag_id, "wait", WAIT, rendered_fields={"external_dag_id": "up"}, operator="ExternalTaskSensor")
    found = surveyed(airflow.url)
    assert sorted(round(costs(found, dag_id, path).duplicates) for dag_id in "abc") == [0, 0, 60]


def test_without_an_audit_log_the_last_start_counts_and_that_is_said(airflow: AirflowTables) -> None:
    """So it is with Airflow 3.1, which writes no starts."""
    airflow.dag("etl", sensor("poke"), sensor("again", reschedule=True))
    airflow.one_try("etl", "poke", WAIT, logged=False)
    airflow.one_try("etl", "again", [(BEGUN + 600 * n, BEGUN + 600 * n + 3) for n in range(5)], logged=False)
    found = surveyed(airflow.url)
    assert found.unknown["starts"] == 2
    assert costs(found).starts == 1 + 1
    assert costs(found).slot_seconds == pytest.approx(WAITED + 3 + 2 * START_SECONDS, abs=0.1)
    assert "2 tries: the audit log has no starts of them" in savings("--airflow-db", airflow.url).stdout


def test_earlier_tries_count_and_none_counts_twice(airflow: AirflowTables) -> None:
    airflow.dag("etl", sensor("wait"))
    airflow.one_try("etl", "wait", WAIT, ended_by="failed", history=True, logged=False)
    airflow.one_try("etl", "wait", [(BEGUN + 2 * HOUR, BEGUN + 2 * HOUR + WAITED)], try_number=2, logged=False)
    assert costs(surveyed(airflow.url)).slot_seconds == pytest.approx(2 * (WAITED + START_SECONDS), abs=0.1)
    airflow.one_try("etl", "wait", WAIT, ended_by="failed", history=True, logged=False, run_id="run2")
    # the next try is scheduled: its dates are those of the try before
    airflow.one_try("etl", "wait", WAIT, ended_by="scheduled", try_number=2, logged=False, run_id="run2")
    assert costs(surveyed(airflow.url)).tries == 3


def test_a_try_that_still_waits_counts_up_to_now(airflow: AirflowTables) -> None:
    airflow.dag("etl", sensor("poke"), sensor("again", "acme.Again", reschedule=True))
    airflow.one_try("etl", "poke", [(NOW - HOUR, None)], ended_by="running")
    starts: list[tuple[float, float | None]] = [(NOW - HOUR + 600 * n, NOW - HOUR + 600 * n + 3) for n in range(5)]
    airflow.one_try("etl", "again", starts, ended_by="up_for_reschedule")
    found = surveyed(airflow.url)
    assert costs(found).slot_seconds == pytest.approx(time.time() - NOW + HOUR, abs=30)
    assert costs(found, path="acme.Again").slot_seconds == pytest.approx(15 + 5 * START_SECONDS, abs=0.1)


def test_what_ended_before_and_what_never_ran_is_left_out(airflow: AirflowTables) -> None:
    airflow.dag("etl", sensor("wait"))
    airflow.one_try("etl", "wait", [(NOW - 50 * HOUR, NOW - 49 * HOUR)])
    airflow.one_try("etl", "wait", [(BEGUN, BEGUN)], ended_by="skipped", logged=False, run_id="skipped")
    assert surveyed(airflow.url, days=2).entries == {}
    assert costs(surveyed(airflow.url, days=3)).tries == 1


def test_the_newest_version_of_a_dag_says_what_is_a_sensor(one: AirflowTables) -> None:
    one.dag("etl", sensor("gone"), created=1)
    one.dag("etl", compressed=zlib.compress(json.dumps(serialized("etl", sensor("wait"))).encode()), created=2)
    for task_id in ("wait", "gone"):
        one.one_try("etl", task_id, WAIT)
    assert costs(surveyed(one.url)).tries == 1


def test_tries_in_a_pool_are_left_out(one: AirflowTables) -> None:
    one.dag("etl", sensor("wait"))
    one.add(airflow_tables.trigger, id=1, classpath="sensorpool.airflow.trigger.PoolTrigger")
    one.one_try("etl", "wait", WAIT, run_id="run1", trigger_id=1)
    one.one_try("etl", "wait", WAIT, run_id="run2")
    found = surveyed(one.url)
    assert found.modes == {Mode.POOLED: 1, Mode.POKE: 1}
    assert costs(found).tries == 1
    assert "1 tries wait in a pool" in savings("--airflow-db", one.url).stdout


# Refusals


def refused(*arguments: str) -> str:
    """Return the one line by which arguments are refused."""
    said = savings(*arguments)
    assert said.exit_code in {1, 2}, said.output
    [line] = said.stderr.splitlines()
    return line


def test_a_database_that_is_not_airflows_is_refused(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    assert "is no metadata database of Airflow 3" in refused("--airflow-db", url)
    with engine.begin() as connection:  # as Airflow 2 has it
        connection.execute(text("CREATE TABLE task_instance (dag_id VARCHAR(250), task_id VARCHAR(250))"))
    engine.dispose()
    assert "is no metadata database of Airflow 3" in refused("--airflow-db", url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "cannot be read"),
        ("oracle://user:tops3cret@host/x", "names no database of Airflow's"),
        ("sqlite:////no/such/airflow.db", "there is no file"),
        ("sqlite://", "there is no file"),
        ("postgresql+psycopg2://user:tops3cret@127.0.0.1:1/airflow", "does not answer"),
        ("postgresql+asyncpg://user:tops3cret@127.0.0.1:1/airflow?password=an0thersecret", "does not answer"),
        ("mysql+mysqldb://user:tops3cret@127.0.0.1:1/airflow", "does not answer"),
        ("postgresql://user:tops3cret@127.0.0.1:notaport/airflow", "cannot be read"),
        ("postgresql://user:tops3cret@127.0.0.1:1/airflow?no_such_option=1", "does not answer"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused_without_its_secrets(url: str, said: str) -> None:
    line = refused("--airflow-db", url)
    assert said in line
    assert "cret" not in line


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "airflow.db").write_text("no database" * 1_000)
    assert "file is not a database" in refused("--airflow-db", f"sqlite:///{tmp_path}/airflow.db")


@pytest.mark.parametrize("option", ["--days", "--poke-interval"])
@pytest.mark.parametrize("value", ["inf", "-1", "x"])
def test_odd_numbers_are_refused(one: AirflowTables, option: str, value: str) -> None:
    assert savings("--airflow-db", one.url, option, value).exit_code == 2


def test_an_empty_airflow_has_nothing_to_save(airflow: AirflowTables) -> None:
    said = savings("--airflow-db", airflow.url)
    assert said.exit_code == 0, said.output
    assert "There is no try of a sensor that waited without the pool." in said.stdout


# It only reads


def test_its_connection_cannot_write(airflow: AirflowTables) -> None:
    airflow.dag("etl", sensor("wait"))
    airflow.one_try("etl", "wait", WAIT)
    database = ReadOnlyDatabase(airflow.url)
    for statement in ("DELETE FROM task_instance", "UPDATE log SET event = 'x'", "CREATE TABLE t (id INTEGER)"):
        with pytest.raises(Unreachable) as refusal:
            database.read(lambda connection, it: connection.execute(text(it)), statement)
        assert isinstance(refusal.value.__cause__, DBAPIError)
        assert any(each in str(refusal.value).lower() for each in ("read-only", "readonly", "read only"))
    database.close()
    assert costs(surveyed(airflow.url)).tries == 1


def test_a_statement_of_a_server_has_a_time_limit(airflow: AirflowTables, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = airflow.url.partition(":")[0]
    if kind == "sqlite":
        return
    monkeypatch.setattr(read_only, "_SECONDS", 1)
    slow = "SELECT pg_sleep(60)" if kind.startswith("postgresql") else "SELECT sleep(60)"
    database = ReadOnlyDatabase(airflow.url)
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="more than 1 s"):
        database.read(lambda connection: connection.execute(text(slow)).all())
    assert time.monotonic() - begun < 30
    database.close()


def test_a_role_without_rights_is_told_which_it_needs(postgres_server: Server | Elsewhere) -> None:
    with fresh_database(postgres_server) as url:
        tables = AirflowTables(url)
        tables.close()
        role = f"reader_{os.urandom(6).hex()}"
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD 'tops3cret'"))
            try:
                theirs = make_url(url).set(username=role, password="tops3cret").render_as_string(hide_password=False)
                line = refused("--airflow-db", theirs)
                wanted = ", ".join(each.name for each in airflow_tables.metadata.sorted_tables)
                connection.execute(text(f"GRANT SELECT ON {wanted} TO {role}"))
                assert savings("--airflow-db", theirs).exit_code == 0
            finally:
                connection.execute(text(f"DROP OWNED BY {role}"))
                connection.execute(text(f"DROP ROLE {role}"))
        engine.dispose()
    assert "refuses: permission denied for table" in line
    assert "tops3cret" not in line


def test_a_log_row_without_a_time_is_no_start(one: AirflowTables) -> None:
    one.dag("etl", sensor("wait"))
    one.one_try("etl", "wait", WAIT)
    key = {"dag_id": "etl", "task_id": "wait", "run_id": "run1", "map_index": -1, "try_number": 1}
    one.add(airflow_tables.log, **key, dttm=None, event="running")
    assert costs(surveyed(one.url)).starts == 1


# What it prints


def seen_in_terminal(arguments: list[str], columns: int) -> str:
    """Return what a command prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "sensorpool", *arguments]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.DEVNULL, env=variables) as process:
        os.close(theirs)
        printed = b""
        try:
            while part := os.read(ours, 65_536):
                printed += part
        except OSError:  # Linux says so when the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return printed.decode().replace("\r", "")


def filled(tables: AirflowTables, dags: int) -> None:
    for number in range(dags):
        dag_id = f"a_pipeline_with_a_long_name_number_{number:03d}"
        tables.dag(dag_id, sensor("wait"), sensor("ours", f"acme.sensors.Partner{number}"))
        tables.one_try(dag_id, "wait", [(BEGUN, BEGUN + HOUR + number)])
        tables.one_try(dag_id, "ours", [(BEGUN, BEGUN + 600)], operator="Partner")


def test_a_terminal_shows_the_greatest_within_80_columns(one: AirflowTables) -> None:
    filled(one, 25)
    shown = seen_in_terminal(["savings", "--airflow-db", one.url], columns=80)
    lines = shown.splitlines()
    assert max(len(line) for line in lines if "  " in line) <= 80, "tables fit"
    assert [line.strip() for line in lines if line.strip().endswith(" more")] == ["5 more", "6 more"]
    assert shown.index("024 ") < shown.index("023 "), "the most slot-hours come first"
    assert "? Partner" in shown
    assert "+ FileSensor" in shown


def test_piped_it_shows_all(one: AirflowTables) -> None:
    filled(one, 25)
    said = savings("--airflow-db", one.url)
    assert said.exit_code == 0
    assert sum(line.startswith("a_pipeline_with_a_long_name_number_") for line in said.stdout.splitlines()) == 25
    assert "? acme.sensors.Partner7" in said.stdout
    assert '50 tries in mode "poke": Airflow does not keep their poke_interval; 60 s counts' in said.stdout


def test_json_has_all_figures_and_they_add_up(one: AirflowTables) -> None:
    filled(one, 25)
    said = savings("--json", AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=one.url)
    made: dict[str, Any] = json.loads(said.stdout)
    for parts in (made["by_dag"], made["by_class"], list(made["by_taken"].values())):
        assert sum(row["tries"] for row in parts) == made["total"]["tries"] == 50
        assert sum(row["pokes"] for row in parts) == made["total"]["pokes"]
    assert {row["class"]: row["taken"] for row in made["by_class"]}[FILE_SENSOR] == "by default"
    assert made["by_taken"]["not known"]["tries"] == 25
    assert made["unknown"]["condition"] == 50


def test_the_commands_of_the_page(one: AirflowTables) -> None:
    filled(one, 2)
    [block] = [command_lines(block) for block in blocks("docs/savings.md", *SHELLS)]
    export, *commands = block
    assert export.startswith("export AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=")
    for line in commands:
        ended = CliRunner().invoke(main, line.split()[1:], env={"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": one.url})
        assert ended.exit_code == 0, ended.output
        assert "FileSensor" in ended.stdout
