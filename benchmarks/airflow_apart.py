"""A real Airflow whose pool has a database of its own, so that PostgreSQL counts what Airflow alone does."""

from typing import Any

from sqlalchemy import create_engine, text

from harness.airflow_cluster import AirflowCluster


class ClusterApart(AirflowCluster):
    """Airflow, with the pool's tables in a database of their own."""

    def start(self) -> None:
        """Start everything."""
        self.postgres.start()
        outside = create_engine(self.postgres.url, isolation_level="AUTOCOMMIT")
        with outside.connect() as connection:
            connection.execute(text("CREATE DATABASE pool"))
        outside.dispose()
        self.options["database_url"] = f"{self.postgres.url.rpartition('/')[0]}/pool"
        self.pool_engine = create_engine(str(self.options["database_url"]), isolation_level="AUTOCOMMIT")
        super().start()

    def pool_rows(self, statement: str, **parameters: Any) -> list[Any]:
        """Return the rows of a query in the pool's database."""
        with self.pool_engine.connect() as connection:
            return list(connection.execute(text(statement), parameters))

    def transactions(self) -> int:
        """Return how many transactions Airflow's database has seen."""
        row = self.rows("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'")
        return int(row[0][0])
