"""The survey: goes through an Airflow's database, DAG by DAG, and adds up what its sensors cost."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sensorpool.admin.savings import airflow_rows
from sensorpool.admin.savings.airflow_rows import Key, Page
from sensorpool.admin.savings.classes import taken_of
from sensorpool.admin.savings.conditions import asks_for_the_run, condition_of
from sensorpool.admin.savings.database import ReadOnlyDatabase
from sensorpool.admin.savings.estimate import POKE_INTERVAL, START_SECONDS
from sensorpool.admin.savings.ledger import Entries, Ledger
from sensorpool.admin.savings.pool_rows import pool_tables
from sensorpool.admin.savings.serialized import sensors_in
from sensorpool.admin.savings.span_file import SpanFile
from sensorpool.admin.savings.tries import Records, TryReader
from sensorpool.admin.savings.values import Mode, SensorTask, SensorTry, Taken, Unknown
from sensorpool.errors import SchemaMismatch

_OLDER_VERSIONS = 10  # of a serialized DAG, in which a task is looked for that its newest version lacks
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Assumptions:
    """What counts where Airflow's records do not tell. Seconds."""

    start_seconds: float = START_SECONDS
    poke_interval: float = POKE_INTERVAL


@dataclass
class Found:
    """What a survey has found.

    :param entries: the costs by DAG and class of sensors that do not wait in a pool.
    :param task_instances: how many task instances of any kind ended in that time, or go on.
    :param missing: tables of Airflow's, or columns, that this database lacks.
    :param saved: the waits in a pool by DAG and class, as if each had held a slot; None if there is no pool.
    :param saved_since: the begin of the oldest wait that the pool still has.
    :param pool_elsewhere: tries wait for a trigger of ours, and the pool's tables are not here.
    """

    since: datetime
    until: datetime
    entries: Entries
    modes: Counter[Mode] = field(default_factory=Counter)
    task_instances: int = 0
    unknown: Unknown = field(default_factory=Unknown)
    missing: tuple[str, ...] = ()
    saved: Entries | None = None
    saved_since: datetime | None = None
    pool_elsewhere: bool = False


def survey(
    airflow: ReadOnlyDatabase,
    pool: ReadOnlyDatabase | None,
    days: float,
    assumed: Assumptions,
    progress: Progress = lambda _done, _of: None,
) -> Found:
    """Survey the tries that ended in the last days, and those that go on.

    :param pool: the database of the pool, if that is another one.
    :param progress: is called with how many task instances of sensors have been read, and of how many.
    :raises SchemaMismatch: when the database is not Airflow's, or that of an older Airflow.
    :raises Unreachable: when a database does not answer.
    """
    until = datetime.now(UTC)
    with SpanFile() as spans:
        return _Survey(airflow, pool, until - timedelta(days=days), until, assumed, spans).run(progress)


def missing_columns(airflow: ReadOnlyDatabase) -> tuple[str, ...]:
    """Return which of the tables that a survey wants the database lacks, or lacks columns of.

    :raises SchemaMismatch: when it lacks what a survey cannot do without.
    """
    lacking = {name: columns - airflow.columns(name) for name, columns in airflow_rows.NEEDED.items()}
    if not airflow.columns("task_instance"):
        raise SchemaMismatch(f"{airflow.where} has no table task_instance: it is no metadata database of Airflow's")
    if any(lacking.values()):
        what = ", ".join(f"{table}.{name}" for table, names in lacking.items() for name in sorted(names))
        raise SchemaMismatch(f"{airflow.where} is of an Airflow before 3.1, which this cannot read: it lacks {what}")
    return tuple(name for name, columns in airflow_rows.WANTED.items() if columns - airflow.columns(name))


class _Survey:
    def __init__(
        self,
        airflow: ReadOnlyDatabase,
        pool: ReadOnlyDatabase | None,
        since: datetime,
        until: datetime,
        assumed: Assumptions,
        spans: SpanFile,
    ) -> None:
        self._airflow = airflow
        self._missing = missing_columns(airflow)
        self._pool = pool_tables(pool or airflow)
        if pool is not None and self._pool is None:
            raise SchemaMismatch(f"{pool.where} has no tables of sensorpool's: name the pool's database by --pool-db")
        self._assumed = assumed
        self._found = Found(since, until, {}, missing=self._missing)
        self._ledger = Ledger(spans, taken_of, assumed.start_seconds)
        self._reader = TryReader(until.timestamp(), assumed.poke_interval, self._found.unknown)

    def run(self, progress: Progress) -> Found:
        found = self._found
        counts: dict[str, dict[str, tuple[str, int]]] = {}
        for dag_id, task_id, operator, count in self._airflow.read(airflow_rows.count_by_task, found.since):
            _, before = counts.setdefault(dag_id, {}).get(task_id, ("", 0))  # its operator may have changed
            counts[dag_id][task_id] = (operator, before + count)
            found.task_instances += count
        versions = self._airflow.read(airflow_rows.serialized_ids)
        done = 0
        for dag_id, tasks in counts.items():
            sensors = self._sensors(versions.get(dag_id, []), tasks)
            rows = {task_id: count for task_id, (_, count) in tasks.items() if task_id in sensors}
            for page in self._pages(dag_id, rows):
                for one in self._tries(page, sensors):
                    self._count(one)
            done += sum(count for _, count in tasks.values())
            progress(done, found.task_instances)
        found.entries = self._ledger.entries()
        self._look_at_the_pool()
        return found

    def _sensors(self, versions: list[object], tasks: dict[str, tuple[str, int]]) -> dict[str, SensorTask]:
        """Return the sensors among tasks; those that only an older version of their DAG has, too."""
        sensors: dict[str, SensorTask] = {}
        for version in versions[: 1 + _OLDER_VERSIONS]:
            sensors = sensors_in(*self._airflow.read(airflow_rows.serialized, version)) | sensors
            if all(task_id in sensors or not _looks_like_a_sensor(name) for task_id, (name, _) in tasks.items()):
                break
        self._found.unknown.tasks += sum(
            count for task_id, (name, count) in tasks.items() if task_id not in sensors and _looks_like_a_sensor(name)
        )
        return sensors

    def _pages(self, dag_id: str, rows: dict[str, int]) -> Iterator[Page]:
        """Yield pages of few tasks each; a task with more rows than a page has is cut at its runs."""
        since, some, size = self._found.since, list[str](), 0
        for task_id, count in rows.items():
            if count > airflow_rows.PAGE:
                whole = Page(dag_id, (task_id,), since)
                for runs in self._airflow.read(airflow_rows.run_ranges, whole):
                    yield whole._replace(runs=runs)
                continue
            if some and size + count > airflow_rows.PAGE:
                yield Page(dag_id, tuple(some), since)
                some, size = [], 0
            some.append(task_id)
            size += count
        if some:
            yield Page(dag_id, tuple(some), since)

    def _tries(self, page: Page, sensors: dict[str, SensorTask]) -> Iterator[SensorTry]:
        read, has = self._airflow.read, self._has
        starts = read(airflow_rows.starts, page) if has("log") else {}
        reschedules = read(airflow_rows.reschedules, page) if has("task_reschedule") else {}
        pooled = self._pool.tries(page) if self._pool else set()
        conditions = self._conditions(page, sensors)
        current = list(read(airflow_rows.instances, page))
        seen = {(*row.key, row.try_number) for row in current}
        earlier = list(read(airflow_rows.earlier_tries, page)) if has("task_instance_history") else []
        rows = [(row, reschedules.get(row.key)) for row in current]
        rows += [(row, None) for row in earlier if (*row.key, row.try_number) not in seen]
        for row, rescheduled in rows:
            number = (*row.key, row.try_number)
            records = Records(starts.get(number), rescheduled, number in pooled)
            one = self._reader.read(page.dag_id, sensors[row.key[0]], row, records, conditions.get(row.key))
            if one is not None:
                yield one

    def _conditions(self, page: Page, sensors: dict[str, SensorTask]) -> dict[Key, bytes]:
        if not self._has("rendered_task_instance_fields"):
            return {}
        dates: dict[str, float] = {}
        if self._has("dag_run") and any(asks_for_the_run(sensors[task_id]) for task_id in page.task_ids):
            dates = self._airflow.read(airflow_rows.logical_dates, page)
        found: dict[Key, bytes] = {}
        for key, rendered in self._airflow.read(airflow_rows.rendered_fields, page):
            condition = condition_of(page.dag_id, sensors[key[0]], rendered, dates.get(key[1]))
            if condition is not None:
                found[key] = condition
        return found

    def _count(self, one: SensorTry) -> None:
        self._found.modes[one.mode] += 1
        if one.mode is Mode.POOLED:
            self._found.pool_elsewhere |= self._pool is None
            return
        self._found.unknown.condition += one.condition is None and one.mode is not Mode.DEFERRED
        self._ledger.add(one)

    def _look_at_the_pool(self) -> None:
        if self._pool is None:
            return
        with SpanFile() as spans:
            ledger = Ledger(spans, lambda _: Taken.BY_DEFAULT, self._assumed.start_seconds)
            until = self._found.until.timestamp()
            for wait in self._pool.waits(self._found.since.timestamp()):
                ended = max(until if wait.ended is None else wait.ended, wait.begun)
                condition = wait.group_id.to_bytes(8, "big", signed=True)
                path, waited = wait.op_classpath, ended - wait.begun
                ledger.add(
                    SensorTry(wait.dag_id, path, Mode.POKE, 1, wait.begun, ended, waited, wait.interval, condition)
                )
            self._found.saved = ledger.entries()
        oldest = self._pool.oldest()
        self._found.saved_since = None if oldest is None else datetime.fromtimestamp(oldest, UTC)

    def _has(self, table: str) -> bool:
        return table not in self._missing


def _looks_like_a_sensor(operator: str) -> bool:
    return operator.endswith(("Sensor", "SensorOperator", "SensorAsync"))
