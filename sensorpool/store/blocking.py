"""Locks that a change of the schema waits for. The wait is bounded, because all statements queue up behind it."""

from collections.abc import Collection

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError

from sensorpool.store.codes import is_denied

LOCK_WAIT = 2  # seconds for one lock
_MYSQL_CHANGE = 20  # seconds for a lock during the change; the driver waits 30 s for an answer
_SHOWN = 200  # characters of a statement
_UPGRADE = 0x73656E73, 0x75706772  # the advisory lock of a change; registrations take small numbers in the same space
_BACKEND = "mysql", "mariadb"

_POSTGRES_HOLDER = text(
    """
    SELECT a.pid AS id, a.application_name AS who, a.query AS query, c.relname AS name,
           round(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start))) AS seconds
    FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.granted AND l.locktype = 'relation' AND a.datname = current_database() AND l.pid <> pg_backend_pid()
      AND n.nspname = coalesce(nullif(:schema, ''), current_schema()) AND c.relname = ANY(:names)
    ORDER BY coalesce(a.xact_start, a.query_start), c.relname
    LIMIT 1
    """
)
_MYSQL_HOLDER = text(
    """
    SELECT p.id AS id, p.user AS who, coalesce(p.info, 'idle') AS query, 'locks' AS name,
           timestampdiff(SECOND, t.trx_started, now()) AS seconds
    FROM information_schema.innodb_trx t
    JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
    WHERE p.db = database() AND p.id <> connection_id()
    ORDER BY t.trx_started
    LIMIT 1
    """
)


def bound(connection: Connection, tables: Collection[str]) -> None:
    """Bound how long this transaction waits for a lock.

    MySQL and MariaDB cannot roll back a change of the schema, so there all tables are locked once before the change.

    :raises DBAPIError: on MySQL and MariaDB, when another transaction holds one of the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT}s'")
    elif connection.dialect.name in _BACKEND:
        existing = sorted(set(inspect(connection).get_table_names()) & set(tables))
        connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {LOCK_WAIT}")
        if existing:
            try:
                connection.exec_driver_sql(f"LOCK TABLES {', '.join(f'`{name}` WRITE' for name in existing)}")
            except DBAPIError as error:
                if not is_denied(error):
                    raise
            connection.exec_driver_sql("UNLOCK TABLES")
        connection.exec_driver_sql(f"SET SESSION lock_wait_timeout = {_MYSQL_CHANGE}")


def take_turn(connection: Connection) -> None:
    """Wait on PostgreSQL until no other process changes the schema, so that this one begins with what that one left.

    :raises DBAPIError: when the other one takes longer than `bound` allows.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock({}, {})".format(*_UPGRADE))


def holder(connection: Connection, schema: str, tables: Collection[str]) -> str:
    """Describe the transaction that has held a lock on one of these tables for longest, as far as the server tells."""
    try:
        if connection.dialect.name == "postgresql":
            found = connection.execute(_POSTGRES_HOLDER, {"schema": schema, "names": list(tables)}).first()
        else:
            found = connection.execute(_MYSQL_HOLDER).first()
    except DBAPIError:
        found = None  # the role may not see other transactions
    if found is None:
        return "another transaction holds it"
    who = f" ({found.who})" if found.who else ""
    statement = " ".join(str(found.query or "").split())[:_SHOWN] or "not shown to this role"
    what = f"process {found.id}" if connection.dialect.name == "postgresql" else f"connection {found.id}"
    return f"{what}{who} has held {found.name} for {found.seconds or 0:.0f} s: {statement}"
