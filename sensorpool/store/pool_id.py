"""The id of the pool that a database belongs to. It is made with the tables and stays as long as they do."""

import threading
import time
from contextlib import suppress

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from sensorpool.errors import SchemaMismatch, SensorpoolError
from sensorpool.instrumentation import forks
from sensorpool.store.database import Database
from sensorpool.store.schema import schema_info

_PATIENCE = 10.0  # seconds between two questions to a database that gave no id


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
