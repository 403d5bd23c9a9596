"""The guarantees under faults: each row of the fault table (docs/guarantees.md) as a test on the real service."""
