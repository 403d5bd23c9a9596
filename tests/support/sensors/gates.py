"""What scripted sensors and a test tell each other in one process."""

import threading
from collections import defaultdict

LONG = 3_600


gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)


arrived: defaultdict[str, threading.Event] = defaultdict(threading.Event)


departed: defaultdict[str, threading.Event] = defaultdict(threading.Event)


class Gauge:
    """Counts who is inside at once, and the most that ever were."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


gauges: defaultdict[str, Gauge] = defaultdict(Gauge)


def open_all_gates() -> None:
    """Let everybody go: the last thing that a test does."""
    for gate in list(gates.values()):
        gate.set()
