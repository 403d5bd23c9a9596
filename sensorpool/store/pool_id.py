"""The id of the pool that a database belongs to. It is made with the tables, and anew after a restore of a backup."""

import threading
import time
from contextlib import suppress
from uuid import uuid4

from sqlalchemy import Connection, func, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from sensorpool.errors import SchemaMismatch, SensorpoolError
from sensorpool.instrumentation import forks
from sensorpool.store.database import Database, table_prefix
from sensorpool.store.dialects import clock_question
from sensorpool.store.schema import action, landing, outbox, poke_group, schema_info, sensor_instance

_PATIENCE = 10.0  # seconds between two questions to a database that gave no id
_TABLES = (sensor_instance, poke_group, landing, outbox, action)


class PoolId:
    """The id of a database's pool, read at its first use and kept. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: str | None = None
        self._asked = -_PATIENCE
        forks.note(self)

    def begin_anew(self) -> None:
        """Drop the lock: after a fork no thread here would ever release it."""
        self._lock = threading.Lock()

    def get(self) -> str | None:
        """Return the id, or None while the database is away."""
        if self._known is None:
            self.look_again()
        return self._known

    def look_again(self) -> str | None:
        """Read the id again, unless that was a moment ago; return it. The tables may have been made anew."""
        with self._lock:
            if time.monotonic() - self._asked >= _PATIENCE:
                self._asked = time.monotonic()
                with suppress(SensorpoolError, SQLAlchemyError):
                    self._known = read(self._database)
        return self._known


def read(database: Database) -> str:
    """Return the id of a database's pool.

    :raises SchemaMismatch: when the row that holds it is gone.
    :raises Unreachable: when the database does not answer.
    """
    pool_id: str | None = database.read(Connection.scalar, select(schema_info.c.pool_id))
    if pool_id is None:
        raise SchemaMismatch("the database does not say which pool it belongs to: restore its table sensorpool_schema")
    return pool_id


def restore_ids(connection: Connection) -> str:
    """Have the database give no id again that it has given since a backup; return the new id of the pool.

    A waiter that registered after the backup holds an id that the restored database does not know. If another instance
    got that id, the waiter would be told how a stranger ended. The new ids begin with the microseconds since 1970 at
    the restore. A pool gives less than a million ids a second, so they lie above all that were given before, also when
    one backup is restored twice. JavaScript has such numbers exactly until the year 2255.

    Only the owner of the tables may do it.
    """
    dialect = connection.dialect.name
    by_clock = 1000 * int(connection.exec_driver_sql(clock_question(dialect)).scalar_one())
    for table in _TABLES:
        highest = int(connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one())
        first = max(by_clock, highest)  # a clock may have gone back
        if dialect == "postgresql":
            named = f"{table_prefix(connection)}{table.name}"
            sequence = text("SELECT setval(pg_get_serial_sequence(:named, 'id'), :first)")
            connection.execute(sequence, {"named": named, "first": first})
        elif dialect == "sqlite":
            connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
            given = {"name": table.name, "first": first}
            connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :first)"), given)
        else:
            connection.execute(text(f"ALTER TABLE {table.name} AUTO_INCREMENT = {first + 1}"))
    pool_id = uuid4().hex
    connection.execute(update(schema_info).values(pool_id=pool_id))
    return pool_id
