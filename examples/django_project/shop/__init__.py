"""A shop that records what its partners deliver."""
