"""Celery's edge: the application, its tasks, beat, and the one-process service."""
