"""Administration: what an operator asks of a pool, and does to it."""
