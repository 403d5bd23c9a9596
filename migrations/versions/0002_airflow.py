"""The external id of a waiter, and its ending, for Airflow's task instances.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.add_column("sensor_instance", sa.Column("external_id", _name(64)))
    op.add_column("sensor_instance", sa.Column("ending", _name(24)))


def downgrade() -> None:
    op.drop_column("sensor_instance", "ending")
    op.drop_column("sensor_instance", "external_id")
