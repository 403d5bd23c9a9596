"""The peers: other ways to wait, measured on the same load as the pool. See `python -m benchmarks.peers --help`."""
