"""What a process tells of itself: logs, redaction, signs of life, places where a test may break it."""
