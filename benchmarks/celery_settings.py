"""Celery settings of the benchmarks."""

import logging

# a child with a million sensors must not be replaced because of its memory
worker_max_memory_per_child = 0

# the line of a job at which nothing happened is counted, too
logging.getLogger("sensorpool.service.tasks").setLevel(logging.DEBUG)
