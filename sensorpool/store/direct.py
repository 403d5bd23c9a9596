"""Connections that end at a PostgreSQL server: what is set on one holds for all its statements, and what it prepares.

A pooler gives each transaction another connection of the server, which other clients use too. It says a process id of
its own making, so it is recognised.
"""

from typing import Any

from sqlalchemy import Connection, Engine, event

_IS_DIRECT = "sensorpool_is_direct"  # in the notes of SQLAlchemy's pool on a connection
# by a pooler nothing is set: its next client would have it; a limit of the role or of the URL stays as it is
_LOOK = (
    "SELECT pg_backend_pid() = {own}, CASE WHEN pg_backend_pid() = {own} AND current_setting('lock_timeout') = '0' "
    "THEN set_config('lock_timeout', '{milliseconds}', false) END"
)


def listen(engine: Engine, lock_wait: int) -> None:
    """Look at each new connection of an engine; where it is direct, bound its waits for locks.

    A lock on a whole table (``VACUUM FULL``, ``ALTER TABLE``) holds up statements that lock no row, and holds them
    before a limit of the statement's own could count.

    :param lock_wait: milliseconds for one lock.
    """

    def look(connection: Any, record: Any) -> None:
        own = connection.info.backend_pid
        connection.autocommit = True  # a setting of a transaction that is rolled back is lost
        try:
            found = connection.execute(_LOOK.format(own=own, milliseconds=lock_wait)).fetchone()
            record.info[_IS_DIRECT] = bool(found[0])
        except engine.dialect.loaded_dbapi.Error as error:
            if connection.closed or getattr(error, "sqlstate", None) is None:
                raise  # it is lost, or a pooler has no server for it
        connection.autocommit = False

    event.listen(engine, "connect", look)


def is_direct(connection: Connection) -> bool:
    """Whether the connection is known to end at the server."""
    return bool(connection.info.get(_IS_DIRECT))


def doubt(connection: Connection) -> None:
    """Take a connection for one that does not end at the server."""
    connection.info[_IS_DIRECT] = False
