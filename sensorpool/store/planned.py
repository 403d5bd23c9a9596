"""Statements that PostgreSQL plans once a connection: to plan them costs more than to run them.

That needs a connection that ends at the server (`direct`): another one may not know what was prepared before.
"""

import sys
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, event

from sensorpool.store import direct
from sensorpool.store.codes import has_lost_plan

_AFTER = 5  # uses of a connection without plans: a process with a few statements gains nothing
_OPTION = "sensorpool_plan_once"
_PLAN_ONCE = {_OPTION: True}
_USES = "sensorpool_uses"  # in the notes of SQLAlchemy's pool on a connection


def options(connection: Connection) -> dict[str, bool] | None:
    """Return the execution options of a statement that is planned once, where that may be.

    The plan outlives changes of the tables' sizes, so it must be good for any.
    """
    if not direct.is_direct(connection):
        return None
    uses = connection.info[_USES] = connection.info.get(_USES, 0) + 1
    if uses <= _AFTER:
        return None
    driver: Any = connection.connection.driver_connection
    driver.prepare_threshold = sys.maxsize  # no statement but those that ask for it
    return _PLAN_ONCE


def listen(engine: Engine) -> None:
    """Have an engine prepare the statements that have these options."""

    def execute(cursor: Any, statement: str, values: Any, context: Any) -> bool:
        if not context.execution_options.get(_OPTION):
            return False
        cursor.execute(statement, values, prepare=True)
        return True

    def forget(context: ExceptionContext) -> None:
        if context.connection is not None and has_lost_plan(context.original_exception):
            direct.doubt(context.connection)
            driver: Any = context.connection.connection.driver_connection
            driver.prepare_threshold = None

    event.listen(engine, "do_execute", execute)
    event.listen(engine, "handle_error", forget)
