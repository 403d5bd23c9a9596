"""Administration: an operator's questions about a pool, and an operator's actions on it."""
