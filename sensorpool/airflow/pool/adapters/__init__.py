"""What the pool pokes in the place of Airflow's classes."""
