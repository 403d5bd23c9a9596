"""What runs in the pool's own processes for Airflow."""
