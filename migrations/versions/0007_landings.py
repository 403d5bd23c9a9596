"""A record of each condition that ended, and what names its series.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0007"
down_revision = "0006"

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
Digest = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.create_table(
        "landing",
        sa.Column("id", Id, autoincrement=True, nullable=False),
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
    op.add_column("poke_group", sa.Column("family", sa.BigInteger))
    op.add_column("poke_group", sa.Column("backend", _name(250)))
    op.add_column("poke_group", sa.Column("logical_date", sa.BigInteger))
    op.add_column("poke_group", sa.Column("late_since", sa.BigInteger))


def downgrade() -> None:
    for column in ("late_since", "logical_date", "backend", "family"):
        op.drop_column("poke_group", column)
    op.drop_table("landing")
