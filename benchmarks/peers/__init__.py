"""What users have today, measured beside the pool: see `python -m benchmarks.peers --help`."""
