"""What instances take in PostgreSQL, for each 100,000 registrations, and what autovacuum keeps of it."""

import time
from collections.abc import Iterator, Sequence
from itertools import count

from sqlalchemy import text

from benchmarks.report import Row, demand
from benchmarks.stage import HOUR, Stage
from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Registered
from sensorpool.settle import flush
from sensorpool.store import pruning

TABLES = ("sensor_instance", "poke_group", "landing")
ROUNDS = 30
NAP = "1s"  # a round takes a second or two here, and minutes in a pool; autovacuum looks every minute by default
SETTINGS = {
    "autovacuum as it is by default": "",
    "autovacuum after 2 % of the rows": "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02",
}
_MIB = 2**20
_NUMBERS = count()


def run(full: bool) -> Iterator[Row]:
    """Measure what waits, what has ended and what is left, and then a pool in which some wait and many come and go."""
    number = 100_000 if full else 10_000
    with Stage(rescue_interval=HOUR) as stage:
        made = register(stage, number)
        stage.vacuum()
        yield sizes(stage, f"{number:,} wait", number)
        settle(stage, made)
        stage.vacuum()
        yield sizes(stage, f"{number:,} have ended", number)
        prune(stage, made)
        stage.vacuum()
        yield sizes(stage, "they are pruned: space for the next, and the record of landings", number)
    for case, options in SETTINGS.items():
        with Stage(rescue_interval=HOUR) as stage:
            yield churn(stage, case, options, number)


def churn(stage: Stage, case: str, options: str, number: int) -> Row:
    """Have some instances wait all the time, and a tenth as many register, end and be pruned in each round."""
    with stage.pool.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ALTER SYSTEM SET autovacuum_naptime = '{NAP}'"))
        connection.execute(text("SELECT pg_reload_conf()"))
        for table in TABLES if options else ():
            connection.execute(text(f"ALTER TABLE {table} SET ({options})"))
    register(stage, number)
    stage.vacuum()
    at_first, seconds = _mebibytes(stage), []
    for _ in range(ROUNDS):
        began = time.monotonic()
        made = register(stage, number // 10)
        settle(stage, made)
        prune(stage, made)
        seconds.append(time.monotonic() - began)
    runs = "SELECT coalesce(sum(autovacuum_count), 0) FROM pg_stat_user_tables"
    return {
        "case": case,
        "waiting": number,
        "come and gone": ROUNDS * number // 10,
        "MiB of instances and groups at first": at_first,
        "MiB afterwards": _mebibytes(stage),
        "runs of autovacuum": int(stage.rows(runs)[0][0]),
        "seconds of a round: first ten, last ten": [round(sum(some) / 10, 2) for some in (seconds[:10], seconds[-10:])],
    }


def _mebibytes(stage: Stage) -> float:
    statement = "SELECT pg_total_relation_size('sensor_instance') + pg_total_relation_size('poke_group')"
    return round(int(stage.rows(statement)[0][0]) / _MIB, 1)


def register(stage: Stage, number: int) -> list[Registered]:
    """Register conditions with keys as Airflow's tasks have them, of 100 DAGs."""
    numbers = [next(_NUMBERS) for _ in range(number)]
    return stage.pool.register_many(
        {
            "sensor": "sensorpool.sensors.PathSensor",
            "poke_context": {"path": f"s3://lake/table{n % 500}/ds=2026-01-01/part-{n:09}.parquet"},
            "dag_id": f"load_table_{n % 100}",
            "task_id": f"wait_for_partition_{n % 7}",
            "run_id": f"scheduled__2026-01-01T00:00:00+00:00_{n}",
        }
        for n in numbers
    )


def settle(stage: Stage, made: Sequence[Registered]) -> None:
    """Settle what was registered, a thousand groups at a time."""
    database = stage.pool.database
    for first in range(0, len(made), flush.GROUPS):
        some, now = made[first : first + flush.GROUPS], database.read(database.now) + 1
        facts = [Fact(instance.group_id, 1, now, Outcome.LANDED) for instance in some]
        done = flush.flush(database, facts, tick_ms=stage.service.settings.tick_ms)
        demand(sum(len(each.settled) for each in done) == len(some), "some were not settled")


def prune(stage: Stage, made: Sequence[Registered]) -> None:
    """Delete what has ended, as rescue does at the end of the retention."""
    ids = [instance.id for instance in made]
    for first in range(0, len(ids), 1_000):
        some = ids[first : first + 1_000]
        demand(stage.pool.database.run(pruning.prune, some) == len(some), "some were not deleted")


def sizes(stage: Stage, case: str, number: int) -> Row:
    """Return the sizes of the tables with their indexes."""
    parts = {}
    for table in TABLES:
        statement = f"SELECT pg_table_size('{table}'), pg_indexes_size('{table}')"
        parts[table] = [int(size) for size in stage.rows(statement)[0]]
    total = sum(sum(sizes) for sizes in parts.values())
    return {
        "case": case,
        "MiB": round(total / _MIB, 1),
        "bytes a registration": round(total / number),
        "MiB by table: rows, indexes": {
            name: f"{rows / _MIB:.1f}, {indexes / _MIB:.1f}" for name, (rows, indexes) in parts.items()
        },
        "MiB of the whole database": round(
            int(stage.rows("SELECT pg_database_size(current_database())")[0][0]) / _MIB, 1
        ),
    }
