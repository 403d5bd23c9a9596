"""A record of what operators do on the pages, and which late conditions the hook was told of.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql, sqlite

revision = "0008"
down_revision = "0007"

Id = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.create_table(
        "sensorpool_action",
        sa.Column("id", Id, autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", _name(250), nullable=False),
        sa.Column("what", _name(24), nullable=False),
        sa.Column("subject", _name(1000), nullable=False),
        sa.Column("outcome", LongText),
        sa.PrimaryKeyConstraint("id", name="pk_sensorpool_action"),
        sqlite_autoincrement=True,
    )
    op.add_column("poke_group", sa.Column("late_told_at", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("poke_group", "late_told_at")
    op.drop_table("sensorpool_action")
