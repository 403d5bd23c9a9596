"""PostgreSQL finds the groups that are due, and those that are late, by indexes, and reads no others.

An index of cells of shardcodes takes the place of that of shardcodes; a process of an older version, which asks by
shardcode, reads the table until it is replaced.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

CELL = sa.text("(shardcode >> 7)")
LOADED = ["id", "version", "hashcode", "members", "crashes", "poke_interval", "phase", "registered_at", "next_deadline"]
DUE = ["id", "version", "hashcode", "shardcode", "members", "phase", "registered_at", "next_deadline"]


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_index(
        "ix_poke_group_due",
        "poke_group",
        [CELL, "poke_interval", sa.text("mod(phase, greatest(poke_interval, 1))")],
        postgresql_include=DUE,
    )
    op.create_index("ix_poke_group_new", "poke_group", [CELL, "registered_at"])
    op.create_index("ix_poke_group_deadline", "poke_group", [CELL, "next_deadline"])
    late = sa.text("late_since IS NOT NULL")
    op.create_index("ix_poke_group_late_since", "poke_group", ["late_since"], postgresql_where=late)
    op.drop_index("ix_poke_group_load", "poke_group")


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_index("ix_poke_group_load", "poke_group", ["shardcode"], postgresql_include=LOADED)
    for name in ("due", "new", "deadline", "late_since"):
        op.drop_index(f"ix_poke_group_{name}", "poke_group")
