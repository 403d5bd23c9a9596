"""Pages of waiters keep room for the second and last form of each row.

PostgreSQL then writes the end of a waiter beside its row, and leaves the three indexes alone. Pages that are there stay
as they are.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE sensor_instance SET (fillfactor = 50)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE sensor_instance RESET (fillfactor)")
