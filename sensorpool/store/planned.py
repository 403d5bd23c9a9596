"""Statements that PostgreSQL plans once a connection: to plan them costs more than to run them.

That needs a connection that ends at the server. A pooler in transaction mode gives each transaction another connection
of the server, which may not know what was prepared before. It says a process id of its own making, so it is recognised.
"""

import sys
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, event

from sensorpool.store.codes import has_lost_plan

_AFTER = 5  # uses of a connection before it is asked: a process with a few statements gains nothing
_OPTION = "sensorpool_plan_once"
_PLAN_ONCE = {_OPTION: True}
_USES, _IS_DIRECT = "sensorpool_uses", "sensorpool_is_direct"  # in the notes of SQLAlchemy's pool on a connection


def options(connection: Connection) -> dict[str, bool] | None:
    """Return the execution options of a statement that is planned once, where that may be.

    The plan outlives changes of the tables' sizes, so it must be good for any.
    """
    return _PLAN_ONCE if _is_direct(connection) else None


def _is_direct(connection: Connection) -> bool:
    """Whether the connection is known to end at the server."""
    notes = connection.info
    is_direct: bool | None = notes.get(_IS_DIRECT)
    if is_direct is None:
        uses = notes[_USES] = notes.get(_USES, 0) + 1
        if uses <= _AFTER:
            return False
        driver: Any = connection.connection.driver_connection
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        is_direct = notes[_IS_DIRECT] = own == driver.info.backend_pid
        if is_direct:
            driver.prepare_threshold = sys.maxsize  # no statement but those that ask for it
    return is_direct


def listen(engine: Engine) -> None:
    """Have an engine prepare the statements that have these options."""

    def execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
        if not context.execution_options.get(_OPTION):
            return False
        cursor.execute(statement, values, prepare=True)
        return True

    def forget(context: ExceptionContext) -> None:
        if context.connection is not None and has_lost_plan(context.original_exception):
            context.connection.info[_IS_DIRECT] = False
            driver: Any = context.connection.connection.driver_connection
            driver.prepare_threshold = None

    event.listen(engine, "do_execute", execute)
    event.listen(engine, "handle_error", forget)
