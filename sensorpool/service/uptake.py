"""Whether workers take jobs, as beat sees it: by the length of the queue, and by the leases that jobs hold."""

import math
import time

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.model.values import shard_ranges

PATIENCE = 0.5  # seconds that Redis has to answer
_PAUSE = 10.0  # seconds without a question to a Redis that has not answered


class Uptake:
    """What beat knows of the jobs that it sends.

    :param settings: the pool's; None: there are no leases to look at.
    :param span: seconds for which a job that was taken counts.
    """

    def __init__(self, settings: Settings | None, span: float) -> None:
        self._settings = settings
        self._span = span
        self._leases: Leases | None = None
        self._expected = 0  # jobs that wait, if none was taken since the last look
        self._taken = self._failed = -math.inf

    def sent(self) -> None:
        """Note that a job was sent."""
        self._expected += 1

    def look(self, waiting: int) -> None:
        """Note how many jobs wait: fewer than were there and came, if workers took some."""
        if waiting < self._expected:
            self._taken = time.monotonic()
        self._expected = waiting

    def is_seen(self) -> bool:
        """Whether a worker took a job lately, or has one in hand: its range has a holder."""
        now = time.monotonic()
        if now - self._taken < self._span:
            return True
        if self._settings is None or now - self._failed < _PAUSE:
            return False
        try:
            if self._leases is None:
                self._leases = leases_of(self._settings, patience=PATIENCE)
            ranges = shard_ranges(self._settings.shards, self._settings.shard_code_upper_limit)
            return any(holder is not None for holder, _ in self._leases.look(ranges))
        except SensorpoolError:
            self._failed = now
            return False
