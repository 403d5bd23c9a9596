"""A real Airflow with the pool beside it."""
