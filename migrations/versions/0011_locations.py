"""Conditions have a location, by which wake-ups find them.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision = "0010"

Location = sa.String(700).with_variant(
    mysql.VARCHAR(700, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def upgrade() -> None:
    op.add_column("poke_group", sa.Column("location", Location))
    op.create_index(
        "ix_poke_group_location",
        "poke_group",
        ["location"],
        postgresql_ops={"location": "varchar_pattern_ops"},
        postgresql_where=sa.text("location IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_poke_group_location", "poke_group")
    op.drop_column("poke_group", "location")
