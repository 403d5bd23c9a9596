"""What the pool pokes in the place of Airflow's classes: the entry points of ``sensorpool.adapters``."""
