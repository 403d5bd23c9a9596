"""Hypothesis without a time limit an example (a busy machine is no defect), and without files of its own."""

from hypothesis import settings

settings.register_profile("unit", deadline=None, database=None)
settings.load_profile("unit")
