"""Faults and what must come of them: a stateful property test, mutants that it must catch, and a model."""
