"""Celery settings of the benchmarks: a child with a million sensors must not be replaced because of its memory."""

worker_max_memory_per_child = 0
