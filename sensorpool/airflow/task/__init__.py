"""What runs in the process of an Airflow task: it leaves its slot, and concludes."""
