"""The meaning of a driver's error: a conflict, a server that is away, bad data, or none of these."""

import sqlite3
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from sensorpool.errors import SchemaMismatch
from sensorpool.store import database_errors
from sensorpool.store.database_errors import is_conflict, is_data_error, is_unreachable, spoils_connections

pymysql = pytest.importorskip("pymysql")


@pytest.mark.parametrize(
    ("number", "conflict", "unreachable"),
    [(1205, True, False), (1213, True, False), (1040, False, True), (2006, False, True), (1146, False, False)],
)
@pytest.mark.parametrize("sqlstate", [None, "HY000"])
def test_a_number_of_mysql_says_more_than_its_sqlstate(
    number: int, conflict: bool, unreachable: bool, sqlstate: str | None
) -> None:
    """Newer versions of its driver have both."""
    theirs = pymysql.err.OperationalError(number, "as told")
    if sqlstate is not None:
        theirs.sqlstate = sqlstate
    error = OperationalError("SELECT 1", {}, theirs)
    assert (is_conflict(error), is_unreachable(error)) == (conflict, unreachable)


def _psycopg(sqlstate: str | None) -> Any:
    kind = psycopg.errors.lookup(sqlstate) if sqlstate else psycopg.DataError
    return kind("as told")


def _sqlite(name: str) -> Any:
    error = sqlite3.OperationalError("as told")
    error.sqlite_errorname = name
    return error


AWAY, SPOILT, CONFLICT, DATA, UNKNOWN = "away", "away, and its connections are spoilt", "conflict", "data", "unknown"


@pytest.mark.parametrize(
    ("orig", "means"),
    [
        *(
            (_psycopg(state), AWAY)
            for state in ("57P01", "57014", "53100", "53300", "08006", "28P01", "3D000", "25P03")
        ),
        *((_psycopg(state), SPOILT) for state in ("25006", "58030", "58P01")),
        *((_psycopg(state), CONFLICT) for state in ("40001", "40P01", "55P03", "23505")),
        *((_psycopg(state), DATA) for state in ("22P05", "22021", "22003", "54000", "23502", None)),
        *((_psycopg(state), UNKNOWN) for state in ("XX000", "XX001", "42703", "P0001", "0A000", "23503")),
        *((pymysql.err.OperationalError(number, "as told"), AWAY) for number in (1040, 2013, 1114, 1047, 1142)),
        *((pymysql.err.OperationalError(number, "as told"), SPOILT) for number in (1290, 1792, 1836, 1021, 1030)),
        *((pymysql.err.IntegrityError(number, "as told"), CONFLICT) for number in (1062,)),
        *((pymysql.err.DataError(number, "as told"), DATA) for number in (1406, 1366, 1264, 1153)),
        *((pymysql.err.InternalError(number, "as told"), UNKNOWN) for number in (1105, 1034, 1644)),
        *((_sqlite(f"SQLITE_{name}"), AWAY) for name in ("FULL", "CANTOPEN_ISDIR", "NOTADB", "CORRUPT_INDEX")),
        *((_sqlite(f"SQLITE_{name}"), SPOILT) for name in ("READONLY", "READONLY_DBMOVED", "IOERR_WRITE")),
        *((_sqlite(f"SQLITE_{name}"), CONFLICT) for name in ("CONSTRAINT_UNIQUE", "CONSTRAINT_PRIMARYKEY")),
        *((_sqlite(f"SQLITE_{name}"), DATA) for name in ("TOOBIG", "CONSTRAINT_NOTNULL", "CONSTRAINT_CHECK")),
        *((_sqlite(f"SQLITE_{name}"), UNKNOWN) for name in ("ERROR", "CONSTRAINT_TRIGGER", "INTERNAL")),
    ],
    ids=repr,
)
def test_a_code_means_one_thing(orig: Any, means: str) -> None:
    """An error of the server never counts as an error of the data."""
    kinds = {psycopg.DataError: DataError, psycopg.IntegrityError: IntegrityError, sqlite3.Error: OperationalError}
    kind = next((ours for theirs, ours in kinds.items() if isinstance(orig, theirs)), OperationalError)
    error: DBAPIError = kind("UPDATE", {}, orig)
    found = (is_unreachable(error), spoils_connections(orig), is_conflict(error), is_data_error(error))
    assert found == (means in {AWAY, SPOILT}, means == SPOILT, means == CONFLICT, means == DATA)


def test_what_a_driver_cannot_spell_is_bad_data() -> None:
    assert is_data_error(UnicodeEncodeError("latin-1", "💣", 0, 1, "as told"))
    assert is_data_error(OverflowError("as told"))
    assert not is_data_error(TypeError("as told"))


@pytest.mark.parametrize(
    "orig",
    [
        *(_psycopg(state) for state in ("42P01", "42703")),
        *(pymysql.err.ProgrammingError(number, "as told") for number in (1146, 1054)),
        *(sqlite3.OperationalError(f"no such {what}") for what in ("table: poke_group", "column: external_id")),
    ],
    ids=str,
)
def test_what_older_tables_lack_is_told_with_its_mend(orig: Any) -> None:
    with pytest.raises(SchemaMismatch, match="or those of an older version: run `sensorpool db upgrade`"):
        database_errors.explain(OperationalError("SELECT 1", {}, orig))
