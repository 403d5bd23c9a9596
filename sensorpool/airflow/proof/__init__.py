"""Whether a sensor can be poked elsewhere and answer the same: what it reads, what builds it, what it leaves."""
