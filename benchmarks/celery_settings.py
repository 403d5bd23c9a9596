"""Celery settings of the benchmarks: a child keeps its million sensors, and is not replaced for it."""

worker_max_memory_per_child = 0
