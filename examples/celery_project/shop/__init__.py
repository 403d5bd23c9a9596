"""A shop that loads what its partners deliver."""
