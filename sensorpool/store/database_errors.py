"""Errors of the database: what the code of a driver's error means, and the error as one line with its mend.

Each database has codes of its own: SQLSTATEs (PostgreSQL), numbers (MySQL and MariaDB), names (SQLite). A code that is
in none of the lists has no known cause.
"""

import re

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import SchemaMismatch, SettingsError
from sensorpool.instrumentation.redaction import hide_password

CONFLICTS = frozenset({"40001", "40P01", "55P03", "1213", "1205", "3572", "3101"})  # deadlocks, locks, serialization
LOCKED = frozenset({"55P03", "1205"})  # of these: another transaction held a lock for longer than we wait
# another transaction has just inserted the same condition or key: the next attempt sees it
DUPLICATES = frozenset(
    {"23505", "23P01", "1062", "1586", *(f"SQLITE_CONSTRAINT_{kind}" for kind in ("UNIQUE", "PRIMARYKEY", "ROWID"))}
)
# a statement that was prepared is not known, or is another's: there is a pooler in between
LOST_PLANS = frozenset({"26000", "42P05"})

# The server is away, or takes no writes: another connection may find one that does.
READ_ONLY = frozenset({"25006", "1290", "1792", "1836", "SQLITE_READONLY"})
POSTGRES_AWAY = frozenset({"25P03", "25P04", "40003", "42501"})
POSTGRES_AWAY_CLASSES = ("08", "28", "3D", "53", "57", "58")
POSTGRES_DISK = ("58",)
MYSQL_DISK = frozenset({"3", "5", "20", "1021", "1024", "1026", "1030", "1180"})
MYSQL_REFUSED = frozenset({"1040", "1044", "1045", "1049", "1129", "1130", "1203", "1226", "1698", "1820", "1862"})
MYSQL_AWAY = (
    MYSQL_DISK
    | MYSQL_REFUSED
    | {"1037", "1041", "1114", "1206"}  # out of memory, disk space or locks
    | {"1142", "1143", "1227"}  # no right to the statement
    | {"1047", "1053", "1317", "1927", "1969", "3024", "4031"}  # not ready, shutting down, ended
    | {str(code) for code in range(2000, 2062)}  # of the client: the connection
)
SQLITE_AWAY = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOTADB", "SQLITE_CORRUPT")
SQLITE_DISK = ("SQLITE_READONLY", "SQLITE_IOERR")

# Our data is refused: the same database refuses the same data again.
POSTGRES_DATA = frozenset({"54000", "23502", "23514"})
POSTGRES_DATA_CLASSES = ("22",)
MYSQL_DATA = frozenset(
    {
        *("1048", "1364", "3819", "4025"),  # NULL, CHECK
        *("1264", "1265", "1292", "1366", "1406", "1690"),  # the column cannot hold the text or number
        *("1118", "1153", "1301"),  # too large
    }
)
SQLITE_DATA = ("SQLITE_TOOBIG", "SQLITE_MISMATCH", "SQLITE_CONSTRAINT_NOTNULL", "SQLITE_CONSTRAINT_CHECK")

# The server answers, but the role may not do this, or a table or column is missing.
DENIED = frozenset({"42501", "1142", "1143", "1227"})
NO_TABLE = frozenset({"42P01", "3F000", "1146"})
NO_COLUMN = frozenset({"42703", "1054"})

# libpq gives no SQLSTATE of a connection that failed
_REFUSED = re.compile(r"FATAL: (?!.*(starting up|shutting down|recovery|not yet accepting))|no password supplied")
_MYSQL_DRIVERS = {"pymysql", "MySQLdb", "mysql"}  # their numbers tell more than a SQLSTATE


def is_conflict(error: BaseException) -> bool:
    """Whether two transactions conflicted, so that one of them has to be repeated."""
    code = code_of(error)
    if code in CONFLICTS or code in DUPLICATES:
        return True
    return "database is locked" in str(getattr(error, "orig", ""))


def has_lost_plan(error: BaseException) -> bool:
    """Whether a prepared statement cannot be used again: another connection has to prepare it."""
    code = code_of(error)
    return code in LOST_PLANS or (code == "0A000" and "cached plan" in str(cause_of(error)))


def is_locked(error: BaseException) -> bool:
    """Whether another transaction held a lock for longer than we wait."""
    return code_of(error) in LOCKED


def is_unreachable(error: BaseException) -> bool:
    """Whether the database could not be reached, or takes no writes at all (rather than not this one)."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError) or is_conflict(error):
        return False
    code, driver = code_of(error), _driver(error.orig)
    if error.connection_invalidated or code in READ_ONLY:
        return True
    if driver == "sqlite3":
        return code.startswith(SQLITE_AWAY)
    if driver in _MYSQL_DRIVERS:
        return code in MYSQL_AWAY or (code in {"", "0"} and isinstance(error, OperationalError))
    if code in POSTGRES_AWAY or code[:2] in POSTGRES_AWAY_CLASSES:
        return True
    return code == "" and isinstance(error, OperationalError)  # no SQLSTATE: the driver never got an answer


def is_read_only(error: BaseException) -> bool:
    """Whether the server answers but takes no writes: a standby, or a server that was set read-only."""
    return (code := code_of(error)) in READ_ONLY or code.startswith("SQLITE_READONLY")


def is_refused(error: BaseException) -> bool:
    """Whether the server answers but does not let us in: a wrong password, no such database, no free connection."""
    return code_of(error) in MYSQL_REFUSED or _REFUSED.search(str(cause_of(error))) is not None


def is_denied(error: BaseException) -> bool:
    """Whether the server answers but our role lacks the rights."""
    return code_of(error) in DENIED


def spoils_connections(error: BaseException) -> bool:
    """Whether connections to this server are no longer of use, although they still answer.

    :param error: the error of SQLAlchemy or of the driver.
    """
    code, driver = code_of(error), _driver(getattr(error, "orig", error))
    if driver == "sqlite3":
        return code.startswith(SQLITE_DISK)
    return code in READ_ONLY or (code in MYSQL_DISK if driver in _MYSQL_DRIVERS else code[:2] in POSTGRES_DISK)


def is_data_error(error: BaseException) -> bool:
    """Whether our data is to blame: the database will refuse it again."""
    if isinstance(error, UnicodeError | OverflowError):
        return True  # the driver cannot spell it
    if not isinstance(error, DBAPIError):
        return False
    code, driver = code_of(error), _driver(error.orig)
    if driver == "sqlite3":
        return code.startswith(SQLITE_DATA)
    if driver in _MYSQL_DRIVERS:
        return code in MYSQL_DATA
    # without a SQLSTATE the driver refused a value, such as a NUL
    return code in POSTGRES_DATA or code[:2] in POSTGRES_DATA_CLASSES or (isinstance(error, DataError) and code == "")


def is_missing_table(error: BaseException) -> bool:
    """Whether our tables do not exist."""
    return code_of(error) in NO_TABLE or "no such table" in str(getattr(error, "orig", ""))


def is_missing_column(error: BaseException) -> bool:
    """Whether a table of ours is older than this code: it lacks a column."""
    return code_of(error) in NO_COLUMN or "no such column" in str(getattr(error, "orig", ""))


def cause_of(error: BaseException) -> BaseException:
    """Return the driver's own error, whose text has no statement and no values."""
    return getattr(error, "orig", None) or error


def code_of(error: BaseException) -> str:
    """Return the database's code of an error, or an empty text."""
    orig = cause_of(error)
    state = getattr(orig, "sqlstate", None)
    if state is not None and _driver(orig) not in _MYSQL_DRIVERS:
        return str(state)
    if _driver(orig) == "sqlite3":
        return str(getattr(orig, "sqlite_errorname", "sqlite"))
    arguments = getattr(orig, "args", ())
    return str(arguments[0]) if arguments and isinstance(arguments[0], int) else ""


def _driver(orig: BaseException | None) -> str:
    return type(orig).__module__.partition(".")[0]


def where(engine: Engine) -> str:
    """Return the URL of the database without its password, for people."""
    return hide_password(engine.url.render_as_string(hide_password=True))


def unreachable(engine: Engine, error: Exception) -> str:
    """Return one line that says why the database does not do what it is asked to do."""
    cause = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
    said = hide_password(cause[0])[:200]
    if is_denied(error):
        return f"the database {where(engine)} refuses: {said}: give the role its rights (docs/security.md)"
    if is_conflict(error):
        does = "is busy"
    elif is_read_only(error):
        does = "is read-only"
    else:
        does = "refuses the connection" if is_refused(error) else "does not answer"
    return f"the database {where(engine)} {does}: {said}"


def explain(error: Exception) -> None:
    """Raise a clearer error where our tables are missing or old, or the driver does not know an option of the URL.

    :raises SchemaMismatch: when a table or a column is missing.
    :raises SettingsError: when an option is unknown.
    """
    if is_missing_table(error) or is_missing_column(error):
        raise SchemaMismatch(
            "the database has no sensorpool tables, or those of an older version: run `sensorpool db upgrade`"
        ) from error
    said = str(getattr(error, "orig", ""))
    if "invalid connection option" in said or "invalid URI query parameter" in said:
        raise SettingsError(f"SENSORPOOL_DATABASE_URL: {hide_password(said)}") from error
