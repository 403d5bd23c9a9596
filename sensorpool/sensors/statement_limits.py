"""The end of a statement on its server, a little after the time limit of its poke.

No thread that waits for a server can be stopped. Without a limit, each poke of a locked table would leave a session
behind, until the server takes no more. A limit that the connection's user or URL sets stays as it is.
"""

from contextlib import closing, suppress
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.exc import DBAPIError

from sensorpool.sensors.shared import time_limit
from sensorpool.sensors.sql_errors import is_passing

GRACE = 1.0  # seconds after a poke's time limit. By then the poke is reported as one that overran

# for one transaction only: PgBouncer in transaction mode lends the session to other clients afterwards
_POSTGRESQL = (
    "SELECT set_config('statement_timeout', '{milliseconds}', true) WHERE current_setting('statement_timeout') = '0'"
)
# each server reads its own of the two comments, and an older one neither. MySQL limits SELECT only
_MYSQL = (
    "SET @sensorpool_limit = {milliseconds}"
    " /*M!100101 , SESSION max_statement_time = IF(@@max_statement_time = 0, {seconds}, @@max_statement_time) */"
    " /*!50708 , SESSION max_execution_time = IF(@@max_execution_time = 0, {milliseconds}, @@max_execution_time) */"
)
_BEGIN = "BEGIN READ ONLY;"
_AS_IT_STANDS = {"no_parameters": True}


def begins(dialect: Dialect | type[Dialect]) -> bool:
    """Whether `limit_transaction` begins a transaction, in one message with its limit. Such connections autocommit."""
    return dialect.name == "postgresql" and dialect.driver == "psycopg"


def limit_connections(engine: Engine) -> None:
    """Limit the statements on each new connection of an engine, where the server limits by connection."""
    if engine.dialect.name in ("mysql", "mariadb"):
        event.listen(engine, "connect", _limit_mysql)


def limit_transaction(connection: Connection) -> None:
    """Begin a transaction where the driver does not, and limit its statements where the server limits by transaction.

    :raises DBAPIError: when the database is away or busy.
    """
    seconds = _limit()
    begin = _BEGIN if begins(connection.dialect) else ""
    if connection.dialect.name != "postgresql" or not (begin or seconds):
        return
    limit = "" if seconds is None else _POSTGRESQL.format(milliseconds=round(seconds * 1000))
    try:
        connection.exec_driver_sql(begin + limit, execution_options=_AS_IT_STANDS)
    except DBAPIError as error:
        if is_passing(error):
            raise
        connection.rollback()  # a server that speaks PostgreSQL's protocol, and lacks the setting
        if begin:
            connection.exec_driver_sql(begin, execution_options=_AS_IT_STANDS)


def _limit_mysql(connection: Any, _record: Any) -> None:
    if (seconds := _limit()) is None:
        return
    cursor = connection.cursor()
    # a server or a proxy that speaks MySQL's protocol may lack the settings. A lost connection is noticed by the poke
    with closing(cursor), suppress(Exception):
        cursor.execute(_MYSQL.format(seconds=seconds, milliseconds=round(seconds * 1000)))


def _limit() -> float | None:
    seconds = time_limit()
    return None if seconds is None else seconds + GRACE
