"""COMMITs that fail: before the database has received them, or afterwards, so that only the answer is lost."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sensorpool.store.database import Database


@contextmanager
def failing_commits(database: Database, times: int = 1, *, kept: bool) -> Iterator[list[bool]]:
    """Have the next commits of an SQLite database fail as on a lost connection; yield a list with an entry a failure.

    :param kept: whether the database commits all the same.
    """
    dialect: Any = database.engine.dialect
    real, failed = dialect.do_commit, list[bool]()

    def commit(connection: Any) -> None:
        if len(failed) == times:
            real(connection)
            return
        failed.append(kept)
        if kept:
            real(connection)
        raise _lost()

    dialect.do_commit = commit
    try:
        yield failed
    finally:
        dialect.do_commit = real


def _lost() -> Exception:
    error: Any = sqlite3.OperationalError("the connection is lost, as told")
    error.sqlite_errorname = "SQLITE_IOERR"
    return error  # type: ignore[no-any-return]
