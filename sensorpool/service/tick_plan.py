"""Which ranges get a message at a tick: none for a quiet range, and one for several ranges whose jobs are short.

A message costs beat, the broker and a worker more than a look at a range in which nothing is due. The marks that jobs
leave tell the ranges apart (`range_marks`). While no worker lives, and while Redis does not answer within `PATIENCE`,
each range gets a message of its own at each tick.
"""

import time
from collections.abc import Sequence

from sensorpool.config.settings import Settings
from sensorpool.errors import SensorpoolError
from sensorpool.leases.lease import Leases, leases_of
from sensorpool.leases.range_marks import Marks, most_together
from sensorpool.model.values import ShardRange

PATIENCE = 0.5  # seconds
_PAUSE = 10.0  # seconds without a question to a Redis that has not answered
_NO_MARKS = Marks(None, None)


class TickPlan:
    """The plan of each tick of one beat."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._together = most_together(settings.tick)
        self._leases: Leases | None = None
        self._sent_at: dict[ShardRange, float] = {}
        self._asked_in_vain = -_PAUSE

    def messages(self, ranges: Sequence[ShardRange], *, by_marks: bool) -> list[list[ShardRange]]:
        """Return the ranges of each message that is due now.

        :param ranges: the ranges whose tick it is.
        :param by_marks: whether the marks count: workers live.
        """
        now = time.monotonic()
        marks = self._look(ranges, now) if by_marks else [_NO_MARKS] * len(ranges)
        messages: list[list[ShardRange]] = []
        shared: list[ShardRange] = []
        took = 0.0
        for shard_range, mark in zip(ranges, marks, strict=True):
            # by beat's own clock, too: Redis's may be set back, and then a mark lives on
            if mark.quiet is not None and now - self._sent_at.get(shard_range, -mark.quiet) < mark.quiet:
                continue
            if mark.took is None:
                messages.append([shard_range])
                continue
            if shared and took + mark.took > self._together:
                messages.append(shared)
                shared, took = [], 0.0
            shared.append(shard_range)
            took += mark.took
        if shared:
            messages.append(shared)
        return messages

    def sent(self, ranges: Sequence[ShardRange]) -> None:
        """Note that a message was sent for these ranges."""
        self._sent_at.update(dict.fromkeys(ranges, time.monotonic()))

    def _look(self, ranges: Sequence[ShardRange], now: float) -> list[Marks]:
        if now - self._asked_in_vain >= _PAUSE:
            try:
                if self._leases is None:
                    self._leases = leases_of(self._settings, patience=PATIENCE)
                return self._leases.marks.look(ranges)
            except SensorpoolError:
                self._asked_in_vain = now
        return [_NO_MARKS] * len(ranges)
