"""Callbacks have rows of their own, and a large value of several waiters is stored once.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0005"
down_revision = "0004"

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.create_table(
        "sensorpool_callback",
        sa.Column("instance_id", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("task", _name(250), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("next_try_at", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cause", LongText),
        sa.PrimaryKeyConstraint("instance_id", name="pk_sensorpool_callback"),
    )
    op.create_index("ix_sensorpool_callback_next_try_at", "sensorpool_callback", ["next_try_at"])
    op.create_table(
        "shared_value",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("group_id", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("value", LongText, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_shared_value"),
        sqlite_autoincrement=True,
    )
    op.add_column("sensor_instance", sa.Column("shared_value_id", sa.BigInteger))
    op.add_column("sensorpool_outbox", sa.Column("format", sa.Integer))
    op.add_column("sensorpool_outbox", sa.Column("next_try_at", sa.BigInteger))
    op.add_column("sensorpool_outbox", sa.Column("tries", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    _give_back()
    for column in ("tries", "next_try_at", "format"):
        op.drop_column("sensorpool_outbox", column)
    op.drop_column("sensor_instance", "shared_value_id")
    op.drop_table("shared_value")
    op.drop_table("sensorpool_callback")


def _give_back() -> None:
    """Write waiting rows in the form of the version before: values in each row, callbacks with the results."""
    connection = op.get_bind()
    if connection is None:  # offline: only the statements are wanted
        return
    s = sa.table("sensor_instance", sa.column("xcom_value"), sa.column("shared_value_id"))
    v = sa.table("shared_value", sa.column("id"), sa.column("value"))
    c = sa.table("sensorpool_callback", sa.column("instance_id"), sa.column("created_at"))
    o = sa.table("sensorpool_outbox", sa.column("instance_ids"), sa.column("created_at"))
    value = sa.select(v.c.value).where(v.c.id == s.c.shared_value_id).scalar_subquery()
    connection.execute(sa.update(s).where(s.c.shared_value_id.is_not(None)).values(xcom_value=value))
    waiting = connection.execute(sa.select(c.c.instance_id, c.c.created_at)).all()
    if waiting:
        rows = [{"instance_ids": f"[{row.instance_id}]", "created_at": row.created_at} for row in waiting]
        connection.execute(sa.insert(o), rows)
