"""A warehouse for SqlSensor: a table that can be locked, and a look at the server's sessions."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, text

from sensorpool.sensors import engines

_LOCK = {"postgresql": "LOCK TABLE loads IN ACCESS EXCLUSIVE MODE", "mysql": "LOCK TABLES loads WRITE"}
_WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'",
}


def close_engines() -> None:
    """Close the engines that sensors have made."""
    for engine in engines._engines._things.values():
        engine.dispose()
    engines._engines._things.clear()


class Warehouse:
    """A database with the empty tables ``loads`` and ``free``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = create_engine(url, isolation_level="AUTOCOMMIT")
        self.kind = self.engine.dialect.name
        self.run("CREATE TABLE loads (day int)", "CREATE TABLE free (day int)")

    def close(self) -> None:
        """Drop the tables."""
        self.run("DROP TABLE loads", "DROP TABLE free")
        self.engine.dispose()

    def run(self, *statements: str) -> None:
        """Run statements, each by itself."""
        with self.engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def ask(self, statement: str) -> int:
        """Return the number in the first cell of the first row."""
        with self.engine.connect() as connection:
            return int(connection.execute(text(statement)).scalar_one())

    @contextmanager
    def locked(self) -> Iterator[Connection]:
        """Lock ``loads`` as a migration does: a statement that reads it waits."""
        with create_engine(self.url).connect() as connection:
            connection.execute(text(_LOCK[self.kind]))
            try:
                yield connection
            finally:
                connection.invalidate()  # the session ends, and its lock with it

    def waiting(self) -> int:
        """Return how many sessions wait for the lock."""
        return self.ask(_WAITING[self.kind])
