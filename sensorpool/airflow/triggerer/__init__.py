"""What runs in Airflow's triggerer: one notifier learns how instances end, and tells the triggers."""
