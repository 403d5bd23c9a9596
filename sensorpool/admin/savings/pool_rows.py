"""What a pool's own tables say of waits: which tries waited there, from when to when, and what for."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Connection, func, or_, select

from sensorpool.admin.savings.airflow_rows import Page, TryKey
from sensorpool.admin.savings.database import ReadOnlyDatabase
from sensorpool.store.schema import sensor_instance

SCHEMAS = ("sensorpool",)  # that of Airflow's configuration; and the default one
_PAGE = 20_000


class WaitRow(NamedTuple):
    """One wait in the pool. Times are seconds since 1970; ``ended`` is None while it waits."""

    dag_id: str
    op_classpath: str
    begun: float
    ended: float | None
    interval: float
    group_id: int


class PoolTables:
    """The tables of a pool in a database that is read only.

    :param schema: the PostgreSQL schema that they stand in; None for the default one.
    """

    def __init__(self, database: ReadOnlyDatabase, schema: str | None) -> None:
        self._database = database
        self._schema = schema

    def tries(self, page: Page) -> set[TryKey]:
        """Return which tries of a page the pool has an instance of."""
        return self._database.read(self._tries, page)

    def waits(self, since: float) -> Iterator[WaitRow]:
        """Yield the waits that ended since then, or go on."""
        last = 0
        while rows := self._database.read(self._waits, since, last):
            last = rows[-1][0]
            yield from (row for _, row in rows)

    def oldest(self) -> float | None:
        """Return the begin of the oldest wait that the pool still has."""
        return self._database.read(self._oldest)

    def _tries(self, connection: Connection, page: Page) -> set[TryKey]:
        columns = sensor_instance.c
        query = select(columns.task_id, columns.run_id, columns.map_index, columns.try_number).where(
            columns.dag_id == page.dag_id, columns.task_id.in_(page.task_ids)
        )
        return {(task, run, index, number) for task, run, index, number in self._run(connection).execute(query)}

    def _waits(self, connection: Connection, since: float, after: int) -> list[tuple[int, WaitRow]]:
        columns = sensor_instance.c
        query = (
            select(
                columns.id,
                columns.dag_id,
                columns.op_classpath,
                columns.start_date,
                columns.settled_at,
                columns.poke_interval,
                columns.group_id,
            )
            .where(columns.id > after, or_(columns.settled_at.is_(None), columns.settled_at >= int(since * 1000)))
            .order_by(columns.id)
            .limit(_PAGE)
        )
        return [
            (
                number,
                WaitRow(dag_id, path, begun / 1000, None if ended is None else ended / 1000, interval / 1000, group),
            )
            for number, dag_id, path, begun, ended, interval, group in self._run(connection).execute(query)
        ]

    def _oldest(self, connection: Connection) -> float | None:
        found = self._run(connection).execute(select(func.min(sensor_instance.c.start_date))).scalar()
        return None if found is None else float(found) / 1000

    def _run(self, connection: Connection) -> Connection:
        return connection.execution_options(schema_translate_map={None: self._schema})


def pool_tables(database: ReadOnlyDatabase) -> PoolTables | None:
    """Return a pool's tables, if the database has them."""
    for schema in (*(SCHEMAS if database.has_schemas else ()), None):
        if database.columns(sensor_instance.name, schema) >= {"dag_id", "group_id", "settled_at", "poke_interval"}:
            return PoolTables(database, schema)
    return None
