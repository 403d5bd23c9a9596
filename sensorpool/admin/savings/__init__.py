"""Savings: what waiting costs an Airflow by its own records, and what the pool makes of it, or has made of it."""
