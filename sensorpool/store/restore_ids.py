"""New ids after a restore from a backup: the database gives no id again that it has given since that backup.

A waiter that registered after the backup holds an id that the restored database does not know. If another instance got
that id, the waiter would be told how a stranger ended.

The new ids begin with the microseconds since 1970 at the restore. A pool gives less than a million ids a second, so
they lie above all that were given before, also when one backup is restored twice. JavaScript has such numbers exactly
until the year 2255.
"""

from uuid import uuid4

from sqlalchemy import Connection, func, select, text, update

from sensorpool.store.database import table_prefix
from sensorpool.store.dialects import clock_question
from sensorpool.store.schema import action, landing, outbox, poke_group, schema_info, sensor_instance

_TABLES = (sensor_instance, poke_group, landing, outbox, action)


def begin(connection: Connection) -> str:
    """Leave out the ids that may have been given, and give the pool a new id. Return that.

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
