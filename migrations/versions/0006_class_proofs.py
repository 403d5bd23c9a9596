"""What first pokes on Airflow's workers have proved.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"

Digest = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LongText = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def upgrade() -> None:
    op.create_table(
        "class_proof",
        sa.Column("digest", Digest, nullable=False),
        sa.Column("op_classpath", _name(500), nullable=False),
        sa.Column("poke_context", LongText, nullable=False),
        sa.Column("proved_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_class_proof"),
    )
    op.create_index("ix_class_proof_op_classpath", "class_proof", ["op_classpath"])


def downgrade() -> None:
    op.drop_table("class_proof")
