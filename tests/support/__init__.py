"""Shared parts of the tests: builders of values, scripted sensors, readers of the documents."""
