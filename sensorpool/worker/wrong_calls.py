"""A shared call that one process found wrong is turned off in all of them."""

import time

from sensorpool.leases.wrong_calls import WrongCalls
from sensorpool.poke.shared_call import SharedCalls

_LOOK_EVERY = 30.0  # seconds


class WrongCallsHere:
    """Tells the other processes, and hears from them. Safe to share between threads."""

    def __init__(self, wrong: WrongCalls, calls: SharedCalls) -> None:
        self._wrong = wrong
        self._calls = calls
        self._told: set[str] = set()
        self._looked_at = float("-inf")

    def exchange(self) -> None:
        """Tell what was found here, and now and then look at what was found elsewhere.

        :raises Unreachable: when Redis does not answer.
        """
        if news := {path: why for path, why in self._calls.unequal.copy().items() if path not in self._told}:
            self._wrong.note(news)
            self._told.update(news)
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            for op_classpath, why in self._wrong.found().items():
                self._told.add(op_classpath)
                self._calls.turn_off(op_classpath, why)
