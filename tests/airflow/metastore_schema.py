"""The tables of a Hive metastore's own database that say which partitions there are.

Their names are not quoted here, because they are not in the sensor's SQL: PostgreSQL has them in lower case, MySQL as
they are written. Hive's own scripts quote them on PostgreSQL, and the sensor's SQL does not find those tables.
"""

import time
from typing import Any

from sqlalchemy import Connection, NullPool, create_engine, text

# The columns of Hive 3.1's schema, without those that may be null and that nothing here reads.
TABLES = (
    """CREATE TABLE DBS (
        DB_ID BIGINT PRIMARY KEY,
        DB_LOCATION_URI VARCHAR(4000) NOT NULL,
        NAME VARCHAR(128) UNIQUE
    )""",
    """CREATE TABLE TBLS (
        TBL_ID BIGINT PRIMARY KEY,
        CREATE_TIME BIGINT NOT NULL,
        DB_ID BIGINT REFERENCES DBS (DB_ID),
        LAST_ACCESS_TIME BIGINT NOT NULL,
        RETENTION BIGINT NOT NULL,
        TBL_NAME VARCHAR(256),
        IS_REWRITE_ENABLED BOOLEAN NOT NULL DEFAULT FALSE,
        UNIQUE (TBL_NAME, DB_ID)
    )""",
    """CREATE TABLE PARTITIONS (
        PART_ID BIGINT PRIMARY KEY,
        CREATE_TIME BIGINT NOT NULL,
        LAST_ACCESS_TIME BIGINT NOT NULL,
        PART_NAME VARCHAR(767),
        TBL_ID BIGINT REFERENCES TBLS (TBL_ID),
        UNIQUE (PART_NAME, TBL_ID)
    )""",
)


class MetastoreSchema:
    """A metastore's tables in an empty database, and the partitions that a test adds to them."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool)
        with self._engine.begin() as connection:
            for table in TABLES:
                connection.execute(text(table))

    def add(self, db: str, table: str, partition: str) -> None:
        """Add a partition, and its database and table if there are none."""
        now = int(time.time())
        with self._engine.begin() as connection:
            db_id = _row(connection, "DBS", "DB_ID", {"NAME": db}, {"DB_LOCATION_URI": f"file:/warehouse/{db}.db"})
            times = {"CREATE_TIME": now, "LAST_ACCESS_TIME": 0}
            key = {"TBL_NAME": table, "DB_ID": db_id}
            table_id = _row(connection, "TBLS", "TBL_ID", key, {**times, "RETENTION": 0})
            _row(connection, "PARTITIONS", "PART_ID", {"PART_NAME": partition, "TBL_ID": table_id}, times)


def _row(connection: Connection, table: str, identity: str, key: dict[str, Any], rest: dict[str, Any]) -> int:
    """Return the number of the row that has the key, which is made if there is none."""
    same = " AND ".join(f"{name} = :{name}" for name in key)
    found = connection.execute(text(f"SELECT {identity} FROM {table} WHERE {same}"), key).scalar()
    if found is None:
        found = connection.execute(text(f"SELECT COALESCE(MAX({identity}), 0) + 1 FROM {table}")).scalar_one()
        row = {identity: found, **key, **rest}
        values = ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)
    return int(found)
