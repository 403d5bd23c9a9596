"""Refusals: quarantined conditions, and DAGs with too many sensors.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"

Digest = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
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
        "dag_over_quota",
        sa.Column("dag_id", _name(250), nullable=False),
        sa.Column("sensing", sa.Integer, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("dag_id", name="pk_dag_over_quota"),
    )


def downgrade() -> None:
    op.drop_table("dag_over_quota")
    op.drop_table("poke_quarantine")
