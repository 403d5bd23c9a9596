"""What runs in the process of an Airflow task: the task leaves its slot, and concludes when it resumes."""
