"""Alembic's entry: runs the migrations on the connection that `sensorpool.store.migrate` hands over."""

from alembic import context

from sensorpool.store.migrate import VERSION_TABLE
from sensorpool.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transaction_per_migration=False,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
