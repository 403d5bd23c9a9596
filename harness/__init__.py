"""The harness of tests and benchmarks: servers of their own, the real service, its audit, and `until`."""
