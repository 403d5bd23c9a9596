"""The statements of the hot paths: they read indexes, whatever the statistics say, and their number does not grow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from harness.service import SCRIPTED
from sensorpool import Pool, Settings
from sensorpool.model.values import JobResult, ShardRange
from sensorpool.worker.context import Worker

pytestmark = pytest.mark.processes

GROUPS, SHARDS = 15_000, 125
BIG = ("poke_group", "sensor_instance")
SENSOR = "harness.scripted.ManyScriptedSensor"
WRITES = ("INSERT", "UPDATE", "DELETE", "WITH")


@pytest.fixture
def settings(postgres_database: str, redis_url: str) -> Settings:
    return Settings.load(
        database_url=postgres_database,
        redis_url=redis_url,
        shards=SHARDS,
        tick=10.0,  # a slow machine does a job in that
        poke_interval=10.0,
        sensors_enabled=",".join(f"harness.scripted.{name}" for name in SCRIPTED),
    )


@pytest.fixture
def pool(settings: Settings) -> Iterator[Pool]:
    pool = Pool(settings)
    yield pool
    pool.close()


@pytest.fixture
def worker(settings: Settings) -> Iterator[Worker]:
    worker = Worker(settings)
    yield worker
    worker.close()


def register(pool: Pool, folder: Path, number: int, run_id: str = "r", **options: Any) -> list[Any]:
    return pool.register_many(
        {
            "sensor": SENSOR,
            "poke_context": {"folder": str(folder), "name": f"{run_id}{n}"},
            "dag_id": "d",
            "task_id": f"t{n}",
            "run_id": run_id,
            **options,
        }
        for n in range(number)
    )


def analyse(pool: Pool) -> None:
    """Update the statistics, as autovacuum does."""
    with pool.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE)"))


def look_at_all(worker: Worker, shard_range: ShardRange) -> JobResult:
    """Run a job without a last load, so that all groups are due."""
    worker.leases.store.client.delete(f"sensorpool:{{{shard_range}}}:state")
    return worker.run_job(shard_range, "token")


@contextmanager
def explained(engine: Any) -> Iterator[dict[str, str]]:
    """Collect the plan of each statement on the big tables, as its own transaction would run it."""
    plans: dict[str, str] = {}

    def explain(connection: Any, _: Any, statement: str, parameters: Any, *__: Any) -> None:
        if any(table in statement for table in BIG) and not statement.startswith("SET"):
            with connection.connection.driver_connection.cursor() as cursor:
                rows = cursor.execute(f"EXPLAIN {statement}", parameters).fetchall()
            plans[statement] = "\n".join(row[0] for row in rows)

    event.listen(engine, "before_cursor_execute", explain)
    yield plans
    event.remove(engine, "before_cursor_execute", explain)


def assert_indexed(plans: dict[str, str], at_least: int) -> None:
    assert len(plans) >= at_least, list(plans)
    for statement, plan in plans.items():
        for table in BIG:
            assert f"Seq Scan on {table}" not in plan, f"{statement}\n{plan}"
        # a join of unknown sizes may compare each row with each other
        if statement.lstrip().startswith(("UPDATE", "DELETE")):
            assert " Join" not in plan, f"{statement}\n{plan}"


@pytest.fixture(params=["fresh statistics", "no statistics", "statistics of when all had settled"])
def filled(request: pytest.FixtureRequest, pool: Pool, tmp_path: Path) -> Pool:
    """A pool whose tables are large, and whose statistics may be misleading."""
    if request.param.startswith("statistics of"):
        for instance in register(pool, tmp_path, 300, run_id="earlier"):
            pool.cancel(instance.id)
        analyse(pool)
    with pool.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in BIG:
            connection.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
    register(pool, tmp_path, GROUPS)
    if request.param == "fresh statistics":
        analyse(pool)
    return pool


@pytest.mark.parametrize("number", [1, 2, 500])
def test_registering_reads_indexes(filled: Pool, tmp_path: Path, number: int) -> None:
    with explained(filled.database.engine) as plans:
        register(filled, tmp_path, number, run_id="new")
        register(filled, tmp_path, number, run_id="new", try_number=2)
    assert_indexed(plans, at_least=4)


def test_a_job_reads_indexes(filled: Pool, worker: Worker, tmp_path: Path) -> None:
    """The job loads, and settles what its pokes see."""
    with explained(worker.database.engine) as plans:
        for n in range(GROUPS):
            (tmp_path / f"r{n}.landed").touch()
        assert look_at_all(worker, filled.ranges[0]).settled > GROUPS / SHARDS / 2
    due = next(plan for statement, plan in plans.items() if "registered_after" in statement)
    assert "ix_poke_group_load" in due, due
    # the load, the groups, the locks, the members, the verdicts, the deletion of groups
    assert_indexed(plans, at_least=6)


def test_cancelling_reads_indexes(filled: Pool) -> None:
    ids = [row[0] for row in filled.database.read(lambda c: c.execute(text("SELECT max(id) FROM sensor_instance")))]
    with explained(filled.database.engine) as plans:
        filled.cancel(ids[0])
    assert_indexed(plans, at_least=4)


@pytest.fixture
def statements(worker: Worker) -> list[str]:
    """The statements of the worker's database."""
    found: list[str] = []
    event.listen(worker.database.engine, "before_cursor_execute", lambda *a: found.append(a[2].strip()))
    return found


def test_a_job_that_finds_nothing_asks_three_times_however_many_it_pokes_and_writes_nothing(
    pool: Pool, worker: Worker, statements: list[str], tmp_path: Path
) -> None:
    whole = ShardRange(0, worker.settings.shard_code_upper_limit)
    asked: dict[int, int] = {}
    for size, run_id in ((10, "a"), (1_000, "b"), (3_000, "c")):
        register(pool, tmp_path, size, run_id=run_id)
        look_at_all(worker, whole)  # new to this process
        statements.clear()
        assert look_at_all(worker, whole).poked >= size
        asked[size] = len(statements)
        assert not [statement for statement in statements if statement.startswith(WRITES)]
    # the time, what is due, and which groups are in trouble
    assert asked == {10: 3, 1_000: 3, 3_000: 3}


def test_settling_a_flush_is_a_fixed_number_of_statements(
    pool: Pool, worker: Worker, statements: list[str], tmp_path: Path
) -> None:
    whole = ShardRange(0, worker.settings.shard_code_upper_limit)
    asked: dict[int, int] = {}
    for size, run_id in ((1, "a"), (30, "b"), (900, "c")):
        register(pool, tmp_path, size, run_id=run_id, timeout=3_600)
        for n in range(size):
            (tmp_path / f"{run_id}{n}.landed").touch()
        pool.leases.waking.raise_flags({whole: []})
        statements.clear()
        result = worker.run_job(whole, "token")
        assert result.settled == size
        flushes = sum(1 for statement in statements if statement.startswith("INSERT INTO sensorpool_outbox"))
        asked[size] = round(len(statements) / flushes)
    assert max(asked.values()) <= 12, asked
    assert asked[900] <= asked[1], asked
