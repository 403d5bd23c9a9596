"""A renewal of claims, once a heartbeat. One that fails ends no poke, and is tried again soon."""

import time
from collections.abc import Callable

from sensorpool.errors import Unreachable
from sensorpool.instrumentation.logs import logger

_AGAIN = 1.0  # seconds after an attempt that failed

log = logger(__name__)


class Renewal:
    """Says when claims are to be renewed.

    :param heartbeat: seconds between two renewals.
    """

    def __init__(self, heartbeat: float) -> None:
        self.heartbeat = heartbeat
        self._next = 0.0  # by the monotonic clock

    def if_due(self, renew: Callable[[], object]) -> None:
        """Call ``renew`` if a heartbeat has passed since the last call."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + self.heartbeat
        try:
            renew()
        except Unreachable as error:
            log.warning("claims on groups that are poked outside of jobs were not renewed", error=str(error))
            self._next = time.monotonic() + min(_AGAIN, self.heartbeat)
