"""Whether a connection ends at a PostgreSQL server, or at a pooler such as PgBouncer.

A pooler gives each transaction another connection of the server, which other clients use as well. So nothing may be set
on it for longer, and no statement may be prepared on it. A pooler reports a process id of its own making, by which it
is recognised.
"""

from typing import Any

from sqlalchemy import Engine, ExceptionContext, event

from sensorpool.store.database_errors import has_lost_plan

_PREPARED_AFTER = 5  # uses of a statement on a connection; to plan it takes longer than to run it
# a limit of the role or of the URL stays as it is
_LOOK = (
    "SELECT pg_backend_pid() = {own}, CASE WHEN pg_backend_pid() = {own} AND current_setting('lock_timeout') = '0' "
    "THEN set_config('lock_timeout', '{milliseconds}', false) END"
)


def listen(engine: Engine, lock_wait: int) -> None:
    """Look at each new connection of an engine. On a direct one, prepare statements and bound the waits for locks.

    A lock on a whole table (``VACUUM FULL``, ``ALTER TABLE``) holds up statements that lock no row, and holds them
    before a limit of the statement's own could count.

    :param lock_wait: milliseconds for one lock.
    """
    unknown: list[bool] = []  # not empty: a statement that was prepared was not known, so there is a pooler after all

    def look(connection: Any, _record: Any) -> None:
        own = connection.info.backend_pid
        connection.autocommit = True  # a setting of a transaction that is rolled back is lost
        try:
            found = connection.execute(_LOOK.format(own=own, milliseconds=lock_wait)).fetchone()
            if found[0] and not unknown:
                connection.prepare_threshold = _PREPARED_AFTER
        except engine.dialect.loaded_dbapi.Error as error:
            if connection.closed or getattr(error, "sqlstate", None) is None:
                raise  # it is lost, or a pooler has no server for it
        connection.autocommit = False

    def distrust(context: ExceptionContext) -> None:
        if has_lost_plan(context.original_exception):
            unknown.append(True)
            context.is_disconnect = True  # the connections are replaced, and the statement is repeated

    event.listen(engine, "connect", look)
    event.listen(engine, "handle_error", distrust)
