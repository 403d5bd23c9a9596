"""The rate at which tasks end: Airflow's triggerer writes events one by one, 5 to 7 ms each, without a heartbeat.

Ten thousand events at once would take a minute. After half a minute without a heartbeat the triggerer counts as dead
(``[triggerer] triggerer_health_check_threshold``), and a second triggerer ends the same tasks once more.
"""

BURST = 1_000  # events without a delay: the default capacity of a triggerer
RATE = 100.0  # a second, after that


class Pace:
    """Delays events to keep the rate. For one event loop."""

    def __init__(self, now: float) -> None:
        """Start at a time of the monotonic clock, in seconds."""
        self._turn = now - BURST / RATE

    def delay(self, now: float) -> float:
        """Take the next turn; return the seconds until then."""
        self._turn = max(self._turn, now - BURST / RATE) + 1 / RATE
        return max(0.0, self._turn - now)
