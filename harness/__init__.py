"""What tests and benchmarks run on: servers of their own, the real service, its audit, a way to wait."""
