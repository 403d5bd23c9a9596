"""Celery settings of this deployment, laid over the package's own (`sensorpool.service.app.worker_settings`).

Assignments only. The mark says that this file is sensorpool's: a ``celeryconfig.py`` without it is left alone. It is
read from the working directory, or else the Python path; ``SENSORPOOL_CONFIG_MODULE`` names another module instead.
"""

SENSORPOOL_CELERY_CONFIG = True

# how many jobs one worker does at once; each pokes up to SENSORPOOL_POKE_CONCURRENCY groups at once
worker_concurrency = 2

# a child is replaced after so many jobs, or when it has grown to so many kilobytes
worker_max_tasks_per_child = 10_000
worker_max_memory_per_child = 1_500_000

# seconds that a job has to end when the worker is told to stop
worker_soft_shutdown_timeout = 10
