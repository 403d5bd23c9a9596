"""All tables, and the oldest version of the code that may use them.

Revision ID: 0001
Revises:
"""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0001"
down_revision = None

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Digest = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")

LOADED = ["id", "version", "hashcode", "poke_interval", "phase", "registered_at", "next_deadline"]


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.create_table(
        "poke_group",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("digest", Digest, nullable=False),
        sa.Column("hashcode", sa.BigInteger, nullable=False),
        sa.Column("shardcode", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("members", sa.Integer, nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("poke_context", LongText, nullable=False),
        sa.Column("poke_interval", sa.BigInteger, nullable=False),
        sa.Column("phase", sa.BigInteger, nullable=False),
        sa.Column("registered_at", sa.BigInteger, nullable=False),
        sa.Column("next_deadline", sa.BigInteger),
        sa.Column("family", sa.BigInteger),
        sa.Column("backend", _name(250)),
        sa.Column("location", _name(700)),
        sa.Column("logical_date", sa.BigInteger),
        sa.Column("late_since", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_poke_group"),
        sa.UniqueConstraint("digest", name="uq_poke_group_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_poke_group_location",
        "poke_group",
        ["location"],
        postgresql_ops={"location": "varchar_pattern_ops"},
        postgresql_where=sa.text("location IS NOT NULL"),
    )
    op.create_index("ix_poke_group_load", "poke_group", ["shardcode"], postgresql_include=LOADED)
    if op.get_bind().dialect.name == "postgresql":
        late = sa.text("late_since IS NOT NULL")
        op.create_index("ix_poke_group_late_since", "poke_group", ["late_since"], postgresql_where=late)
    op.create_table(
        "group_trouble",
        sa.Column("group_id", sa.BigInteger, autoincrement=False),
        sa.Column("shardcode", sa.Integer, nullable=False),
        sa.Column("strikes", sa.Integer, nullable=False),
        sa.Column("overruns", sa.Integer, nullable=False),
        sa.Column("failing_since", sa.BigInteger),
        sa.Column("unpokeable_since", sa.BigInteger),
        sa.Column("cause", LongText),
        sa.PrimaryKeyConstraint("group_id", name="pk_group_trouble"),
    )
    op.create_index("ix_group_trouble_shardcode", "group_trouble", ["shardcode"])
    op.create_table(
        "sensor_instance",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("dag_id", _name(250), nullable=False),
        sa.Column("task_id", _name(250), nullable=False),
        sa.Column("run_id", _name(250), nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("try_number", sa.Integer, nullable=False),
        sa.Column("external_id", _name(64)),
        sa.Column("logical_date", sa.BigInteger),
        sa.Column("operator", _name(250), nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("joined_version", sa.BigInteger, nullable=False),
        sa.Column("hashcode", sa.BigInteger, nullable=False),
        sa.Column("shardcode", sa.Integer, nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("ending", _name(24)),
        sa.Column("reason", LongText),
        sa.Column("poke_context", LongText, nullable=False),
        sa.Column("execution_context", LongText, nullable=False),
        sa.Column("poke_interval", sa.BigInteger, nullable=False),
        sa.Column("start_date", sa.BigInteger, nullable=False),
        sa.Column("timeout_at", sa.BigInteger, nullable=False),
        sa.Column("next_deadline", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.BigInteger),
        sa.Column("xcom_value", LongText),
        sa.Column("on_settled", LongText),
        sa.PrimaryKeyConstraint("id", name="pk_sensor_instance"),
        sa.UniqueConstraint(
            "dag_id",
            "task_id",
            "run_id",
            "map_index",
            "try_number",
            name="uq_sensor_instance_dag_id_task_id_run_id_map_index_try_number",
        ),
        sqlite_autoincrement=True,
        postgresql_with={"fillfactor": 50},
    )
    op.create_index("ix_sensor_instance_group_id", "sensor_instance", ["group_id"])
    op.create_table(
        "landing",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("family", sa.BigInteger, nullable=False),
        sa.Column("digest", Digest, nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("backend", _name(250)),
        sa.Column("logical_date", sa.BigInteger),
        sa.Column("waiting_since", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("ending", _name(24), nullable=False),
        sa.Column("waiters", sa.Integer, nullable=False),
        sa.Column("pokes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_landing"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_landing_family_ended_at", "landing", ["family", "ended_at"])
    op.create_table(
        "poke_quarantine",
        sa.Column("digest", Digest, nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("poke_context", LongText, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("reason", LongText, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_poke_quarantine"),
    )
    op.create_table(
        "sensorpool_outbox",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("instance_ids", LongText, nullable=False),
        sa.Column("next_try_at", sa.BigInteger),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_outbox"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sensorpool_callback",
        sa.Column("instance_id", sa.BigInteger, autoincrement=False),
        sa.Column("task", _name(250), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("next_try_at", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cause", LongText),
        sa.Column("argument", LongText),
        sa.PrimaryKeyConstraint("instance_id", name="pk_sensorpool_callback"),
    )
    op.create_index("ix_sensorpool_callback_next_try_at", "sensorpool_callback", ["next_try_at"])
    op.create_table(
        "class_proof",
        sa.Column("digest", Digest, nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("poke_context", LongText, nullable=False),
        sa.Column("proved_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_class_proof"),
    )
    op.create_index("ix_class_proof_op_classpath", "class_proof", ["op_classpath"])
    op.create_table(
        "sensorpool_action",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", _name(250), nullable=False),
        sa.Column("what", _name(24), nullable=False),
        sa.Column("subject", _name(1000), nullable=False),
        sa.Column("outcome", LongText),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_action"),
        sqlite_autoincrement=True,
    )
    schema = op.create_table(
        "sensorpool_schema",
        sa.Column("id", sa.Integer, autoincrement=False),
        sa.Column("oldest_code", sa.String(32), nullable=False),
        sa.Column("pool_id", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_schema"),
    )
    op.bulk_insert(schema, [{"id": 1, "oldest_code": "0.1.0", "pool_id": uuid4().hex}])
