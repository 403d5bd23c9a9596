"""The first tables: groups, instances, outbox, and the version of the code that may use them.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0001"
down_revision = None

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Digest = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


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
        sa.Column("crashes", sa.Integer, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_poke_group"),
        sa.UniqueConstraint("digest", name="uq_poke_group_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_poke_group_load",
        "poke_group",
        ["shardcode"],
        postgresql_include=[
            "id",
            "version",
            "hashcode",
            "members",
            "crashes",
            "poke_interval",
            "phase",
            "registered_at",
            "next_deadline",
        ],
    )
    op.create_table(
        "sensor_instance",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("dag_id", _name(250), nullable=False),
        sa.Column("task_id", _name(250), nullable=False),
        sa.Column("run_id", _name(250), nullable=False),
        sa.Column("map_index", sa.Integer, nullable=False),
        sa.Column("try_number", sa.Integer, nullable=False),
        sa.Column("logical_date", sa.BigInteger),
        sa.Column("operator", _name(250), nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("joined_version", sa.BigInteger, nullable=False),
        sa.Column("hashcode", sa.BigInteger, nullable=False),
        sa.Column("shardcode", sa.Integer, nullable=False),
        sa.Column("state", _name(16), nullable=False),
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
    )
    op.create_index("ix_sensor_instance_group_id", "sensor_instance", ["group_id"])
    op.create_table(
        "sensorpool_outbox",
        sa.Column("id", Id, autoincrement=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("instance_ids", LongText, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_outbox"),
        sqlite_autoincrement=True,
    )
    schema = op.create_table(
        "sensorpool_schema",
        sa.Column("id", sa.Integer, autoincrement=False),
        sa.Column("oldest_code", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_schema"),
    )
    op.bulk_insert(schema, [{"id": 1, "oldest_code": "0.1.0"}])


def downgrade() -> None:
    op.drop_table("sensorpool_schema")
    op.drop_table("sensorpool_outbox")
    op.drop_table("sensor_instance")
    op.drop_table("poke_group")
