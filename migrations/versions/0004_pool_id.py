"""The id of the pool that a database belongs to, made once.

Revision ID: 0004
Revises: 0003
"""

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("sensorpool_schema", sa.Column("pool_id", sa.String(32)))
    row = sa.table("sensorpool_schema", sa.column("pool_id", sa.String(32)))
    op.execute(row.update().values(pool_id=uuid4().hex))


def downgrade() -> None:
    op.drop_column("sensorpool_schema", "pool_id")
