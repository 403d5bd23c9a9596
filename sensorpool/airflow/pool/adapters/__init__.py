"""Airflow's classes, as the pool pokes them."""
