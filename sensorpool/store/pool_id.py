"""Which pool a database belongs to. The id is made with the tables and stays as long as they do."""

import threading
import time
from contextlib import suppress
from uuid import uuid4

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError

from sensorpool.errors import SchemaMismatch, SensorpoolError
from sensorpool.instrumentation import forks
from sensorpool.store.database import Database
from sensorpool.store.schema import schema_info

_PATIENCE = 10.0  # seconds between two questions to a database that did not say


class PoolId:
    """The id of a database's pool, asked for when it is first needed and kept. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: str | None = None
        self._asked = -_PATIENCE
        forks.note(self)

    def begin_anew(self) -> None:
        """Wait for no question that was asked before a fork."""
        self._lock = threading.Lock()

    def get(self) -> str | None:
        """Return the id, or None while the database does not say (it is away, or its schema is older)."""
        if self._known is None:
            self.look_again()
        return self._known

    def look_again(self) -> str | None:
        """Ask the database once more, unless that was a moment ago: its tables may have been made anew."""
        with self._lock:
            if time.monotonic() - self._asked >= _PATIENCE:
                self._asked = time.monotonic()
                with suppress(SensorpoolError, SQLAlchemyError):
                    self._known = read(self._database)
        return self._known


def read(database: Database) -> str | None:
    """Return the id of a database's pool, or None if it has none yet.

    :raises Unreachable: when the database does not answer.
    """
    found: str | None = database.read(Connection.scalar, select(schema_info.c.pool_id))
    return found


def ensure(database: Database) -> str:
    """Return the id of a database's pool, and make one where it has none.

    :raises SchemaMismatch: when there is none and this role may not make one.
    :raises Unreachable: when the database does not answer.
    """
    found = read(database)
    if found is None:
        give = update(schema_info).where(schema_info.c.pool_id.is_(None)).values(pool_id=uuid4().hex)
        with suppress(SQLAlchemyError):  # said below
            database.run(Connection.execute, give)
        found = read(database)
    if found is None:
        raise SchemaMismatch("the database does not say which pool it belongs to: run `sensorpool db upgrade`")
    return found
