"""A database's clock that a test moves."""

from sensorpool.model.values import Milliseconds


class Clock:
    """Tells the time that the test has set: ``database._clock = clock``."""

    def __init__(self, ms: Milliseconds) -> None:
        self.ms = ms

    def __call__(self) -> Milliseconds:
        """Tell it."""
        return self.ms
