"""What the sensors of an Airflow cost, and what the pool would have made of it (docs/savings.md)."""
