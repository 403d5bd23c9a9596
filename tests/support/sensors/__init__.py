"""Sensors that do as the tests tell them. They are imported by name, also in child processes."""
