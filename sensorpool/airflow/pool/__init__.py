"""What runs in the pool's own processes for Airflow: adapters that are poked, the doctor's checks, reconciliation."""
