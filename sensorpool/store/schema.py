"""The tables. Times are milliseconds since 1970 UTC by the database's clock; spans are milliseconds.

Alembic owns the schema (``migrations/``); a test holds its head and this metadata equal.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql, sqlite

from sensorpool.model.location import LONGEST

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Digest = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LongText = Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> String:
    """Return a type of text that every database compares byte by byte (MySQL's default ignores case)."""
    return String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


# A row exists while an instance waits for it. Its columns change when members come and go, never on a poke.
poke_group = Table(
    "poke_group",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),  # an id is never reused: caches rely on it
    Column("digest", Digest, nullable=False),
    Column("hashcode", BigInteger, nullable=False),
    Column("shardcode", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),  # grows with every change of the row
    Column("members", Integer, nullable=False),  # sensing instances
    Column("op_classpath", _name(500), nullable=False),
    Column("poke_context", LongText, nullable=False),  # canonical JSON
    Column("poke_interval", BigInteger, nullable=False),  # the shortest step of its members
    Column("phase", BigInteger, nullable=False),
    Column("registered_at", BigInteger, nullable=False),
    Column("next_deadline", BigInteger),  # the earliest of its members
    # of its first waiter
    Column("family", BigInteger),  # the series of conditions that it belongs to; None: it is a series of its own
    Column("backend", _name(250)),
    Column("location", _name(LONGEST)),  # of what it waits for, for wake-ups; None: not known
    Column("logical_date", BigInteger),
    Column("late_since", BigInteger),  # when it was found to be later than its family usually lands
    UniqueConstraint("digest"),
    # on PostgreSQL the index alone answers the load: the table's rows are wide with contexts
    Index(
        "ix_poke_group_load",
        "shardcode",
        postgresql_include=["id", "version", "hashcode", "poke_interval", "phase", "registered_at", "next_deadline"],
    ),
    Index(
        None,
        "location",
        postgresql_ops={"location": "varchar_pattern_ops"},  # for prefixes
        postgresql_where=text("location IS NOT NULL"),
    ),
    Index(None, "late_since", postgresql_where=text("late_since IS NOT NULL")).ddl_if(dialect="postgresql"),
    sqlite_autoincrement=True,
)

# A row for each group whose pokes do not go well (`model.trouble`); written when that changes, and nearly always empty.
group_trouble = Table(
    "group_trouble",
    metadata,
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shardcode", Integer, nullable=False, index=True),
    Column("strikes", Integer, nullable=False),
    Column("overruns", Integer, nullable=False),
    Column("failing_since", BigInteger),
    Column("unpokeable_since", BigInteger),
    Column("cause", LongText),
)

# A row for each waiter. Columns have AIP-17's names where these still exist. No index on columns that change.
sensor_instance = Table(
    "sensor_instance",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("dag_id", _name(250), nullable=False),
    Column("task_id", _name(250), nullable=False),
    Column("run_id", _name(250), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("try_number", Integer, nullable=False),
    Column("external_id", _name(64)),  # the waiter's id in its own system: Airflow's id of the try
    Column("logical_date", BigInteger),
    Column("operator", _name(250), nullable=False),
    Column("op_classpath", _name(500), nullable=False),
    Column("group_id", BigInteger, nullable=False),
    Column("joined_version", BigInteger, nullable=False),
    Column("hashcode", BigInteger, nullable=False),
    Column("shardcode", Integer, nullable=False),
    Column("state", _name(16), nullable=False),
    Column("ending", _name(24)),  # why the instance took its terminal state
    Column("reason", LongText),
    Column("poke_context", LongText, nullable=False),  # canonical JSON, kept for people when the group is gone
    Column("execution_context", LongText, nullable=False),  # JSON: how to wait
    Column("poke_interval", BigInteger, nullable=False),  # its current step
    Column("start_date", BigInteger, nullable=False),
    Column("timeout_at", BigInteger, nullable=False),
    Column("next_deadline", BigInteger, nullable=False),  # the timeout, or the next growth of its step
    Column("settled_at", BigInteger),
    Column("xcom_value", LongText),  # JSON
    Column("on_settled", LongText),  # JSON: a Celery signature
    UniqueConstraint("dag_id", "task_id", "run_id", "map_index", "try_number"),
    Index(None, "group_id"),
    postgresql_with={"fillfactor": 50},  # the end of a row is written beside it, and no index is touched
    sqlite_autoincrement=True,
)

# A row for each condition that ended, written with the settle of its last waiter. It outlives the rows of its waiters.
landing = Table(
    "landing",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("family", BigInteger, nullable=False),
    Column("digest", Digest, nullable=False),
    Column("op_classpath", _name(500), nullable=False),
    Column("backend", _name(250)),
    Column("logical_date", BigInteger),
    Column("waiting_since", BigInteger, nullable=False),  # of its first waiter
    Column("ended_at", BigInteger, nullable=False),  # when it landed; when its last waiter ended, if it did not land
    Column("ending", _name(24), nullable=False),
    Column("waiters", Integer, nullable=False),
    Column("pokes", BigInteger, nullable=False),  # as its interval says
    Index(None, "family", "ended_at"),
    sqlite_autoincrement=True,
)

# Conditions whose poke took its process down too often: refused until an operator releases them.
poke_quarantine = Table(
    "poke_quarantine",
    metadata,
    Column("digest", Digest, primary_key=True),
    Column("op_classpath", _name(500), nullable=False),
    Column("poke_context", LongText, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("reason", LongText, nullable=False),
    Column("since", BigInteger, nullable=False),
)

# A row for each flush, written with the settle and deleted when its message is sent.
outbox = Table(
    "sensorpool_outbox",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("created_at", BigInteger, nullable=False),
    Column("instance_ids", LongText, nullable=False),  # JSON
    Column("next_try_at", BigInteger),  # None: only the process that wrote the row has tried it
    Column("tries", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)

# A row for each task that its broker has not taken yet: `on_settled`, written with the settle, or `on_late`.
callback = Table(
    "sensorpool_callback",
    metadata,
    Column("instance_id", BigInteger, primary_key=True, autoincrement=False),  # negative: of a late group
    Column("task", _name(250), nullable=False),  # its name: a worker sends the tasks that its settings allow
    Column("created_at", BigInteger, nullable=False),
    Column("next_try_at", BigInteger, nullable=False, index=True),
    Column("tries", Integer, nullable=False, server_default="0"),
    Column("cause", LongText),  # why it was not sent
    Column("argument", LongText),  # JSON, of `on_late`; an `on_settled` task gets the result of its instance
)

# What a first poke on an Airflow worker has proved of a class: other sensors like it may begin without a worker.
class_proof = Table(
    "class_proof",
    metadata,
    Column("digest", Digest, primary_key=True),  # of the class, its code, and the arguments that it was proved with
    Column("op_classpath", _name(500), nullable=False, index=True),
    Column("poke_context", LongText, nullable=False),  # as it was registered
    Column("proved_at", BigInteger, nullable=False),
)

# A row for each thing that an operator did on a page: who, when, what, and what came of it.
action = Table(
    "sensorpool_action",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("who", _name(250), nullable=False),
    Column("what", _name(24), nullable=False),
    Column("subject", _name(1000), nullable=False),
    Column("outcome", LongText),  # None: the process ended before it was known
    sqlite_autoincrement=True,
)

# A single row: which version of the code may use this schema, and which pool it belongs to.
schema_info = Table(
    "sensorpool_schema",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("oldest_code", String(32), nullable=False),
    Column("pool_id", String(32), nullable=False),
)
