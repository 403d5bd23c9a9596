"""Seeded faults: each must be caught by the guarantee that it breaks."""
