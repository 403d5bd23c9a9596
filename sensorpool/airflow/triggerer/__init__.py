"""What runs in Airflow's triggerer: it hears what has settled, and tells the triggers."""
