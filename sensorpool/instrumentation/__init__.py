"""What a process tells of itself: logs, redaction, signs of life, and failpoints for tests."""
