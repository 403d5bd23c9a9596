"""Thousands of sensors on a real Airflow: by the scheduler, by a worker, and by Airflow's own two ways, in one run."""
