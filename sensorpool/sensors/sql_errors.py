"""The meaning of a database's errors."""

from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from sensorpool.sensors.connections import one_line

# SQLSTATE: connection lost, conflict of transactions, out of resources, shut down or cancelled, I/O error
_PASSING_CLASSES = ("08", "40", "53", "57", "58")
_PASSING_STATES = frozenset({"55P03"})  # a lock was not available
# of MySQL and MariaDB
_PASSING_NUMBERS = frozenset(
    {
        *(1021, 1037, 1038, 1041, 1114, 1206),  # out of disk, memory, and room for tables and locks
        *(1040, 1203, 1226),  # too many connections, of all users and of one
        *(1047, 1053),  # a node of Galera that is not ready; a shutdown
        *(1205, 1213, 1020, 3572),  # a lock, a deadlock, a row that has changed, a lock without a wait
        *(1317, 1969, 3024),  # ended by KILL QUERY, MariaDB's max_statement_time, MySQL's max_execution_time
        *(1927, 4031),  # ended by KILL, and by the server's limit for idle connections
        *(2002, 2003, 2006, 2013),  # the client's: not reached, has gone away, lost
    }
)
_PASSING_SQLITE = (
    *("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PROTOCOL"),
    *("SQLITE_INTERRUPT", "SQLITE_NOMEM", "SQLITE_FULL"),
)


def is_passing(error: DBAPIError) -> bool:
    """Whether the database was away or busy, or ended the statement, rather than refusing it."""
    if error.connection_invalidated:
        return True
    state = _state(error)
    if state is not None and (state[:2] in _PASSING_CLASSES or state in _PASSING_STATES):
        return True
    if isinstance(found := getattr(error.orig, "sqlite_errorname", None), str):
        return found.startswith(_PASSING_SQLITE)
    return _number(error) in _PASSING_NUMBERS


def has_code(error: DBAPIError) -> bool:
    """Whether the error has a code of the server; of the drivers that we know, one without it refuses an option."""
    return _state(error) is not None or _number(error) is not None


def said_by(error: BaseException, url: str) -> str:
    """Return the database's error in one line, without the statement, its parameters and the password."""
    said = getattr(error, "orig", None) or error
    if isinstance(said, SQLAlchemyError):
        said = said.args[0] if said.args else type(said).__name__
    try:
        password = make_url(url).password or ""
    except (ArgumentError, ValueError):
        password = ""
    return one_line(str(said), [password, url])


def _state(error: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error, as far as its driver tells."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return state if isinstance(state, str) else None


def _number(error: DBAPIError) -> int | None:
    """Return the number of an error of MySQL or MariaDB."""
    said: tuple[Any, ...] = getattr(error.orig, "args", ())
    return said[0] if said and isinstance(said[0], int) else None
