"""Sensors that behave as a test tells them. They are imported by name, also in child processes."""
