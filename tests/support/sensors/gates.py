"""Gates and gauges, by which scripted sensors and a test in one process signal each other."""

import threading
from collections import defaultdict

LONG = 3_600


gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)


arrived: defaultdict[str, threading.Event] = defaultdict(threading.Event)


departed: defaultdict[str, threading.Event] = defaultdict(threading.Event)


class Gauge:
    """Counts the pokes that are inside at once, and their maximum."""

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
    """Open all gates, at the end of a test."""
    for gate in list(gates.values()):
        gate.set()
