"""How fast tasks end: Airflow's triggerer writes its events one by one, 5 to 7 ms each, with no heartbeat meanwhile.

Ten thousand at once would keep it from that for a minute. After half of that it counts as dead
(``[triggerer] triggerer_health_check_threshold``), and a second triggerer ends the same tasks once more.
"""

BURST = 1_000  # events that go at once: what a triggerer has room for by default
RATE = 100.0  # a second, after that


class Pace:
    """Gives each event its turn. For one event loop."""

    def __init__(self, now: float) -> None:
        """Begin, at a time by the monotonic clock, in seconds."""
        self._turn = now - BURST / RATE

    def delay(self, now: float) -> float:
        """Take a turn; return in how many seconds it comes."""
        self._turn = max(self._turn, now - BURST / RATE) + 1 / RATE
        return max(0.0, self._turn - now)
