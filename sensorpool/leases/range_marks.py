"""Two marks of a range, which a job leaves for beat: each spares jobs, and none is needed.

The quiet mark says that nothing of the range is due for a while: beat leaves its messages out. It expires when the next
group is due, and at the latest after `LONGEST_QUIET`. A job that begins deletes it, and so does a registration that
opens a group, or that makes a group due earlier. The light mark says how long the last job took: beat has one job serve
several such ranges. Where a mark is missing, beat sends a message for the range.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sensorpool.leases.redis_store import RedisStore
from sensorpool.model.values import Milliseconds, ShardRange

_TOGETHER = 1.25  # seconds
_WOKEN_KEPT = 3_600_000  # milliseconds; the next job deletes it
LONGEST_QUIET = 60_000  # milliseconds; a registration whose nudge is lost waits for so long


def most_together(tick: float) -> float:
    """Return for how many seconds of work ranges may share a job, by their light marks: at most a quarter of a tick."""
    return min(_TOGETHER, tick / 4)


class Outlook(NamedTuple):
    """The marks that a job leaves; 0 stands for no mark."""

    quiet_span: Milliseconds = 0  # from the load to the next group that is due
    quiet_left: Milliseconds = 0  # what is left of it
    took: Milliseconds = 0  # how long the job took, or what it counts for beside others
    light_kept: Milliseconds = 0  # how long the light mark is kept


NO_MARKS = Outlook()


class Marks(NamedTuple):
    """The marks of a range as beat reads them; None: no such mark."""

    quiet: float | None  # seconds from the load to the next group that is due
    took: float | None  # seconds of the last job


class RangeMarks:
    """The marks of a pool's ranges.

    :raises Unreachable: by every method, when Redis does not answer.
    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._marks = store.script("marks")

    def look(self, ranges: Sequence[ShardRange]) -> list[Marks]:
        """Return the marks of each range; a quiet range counts as looked at."""
        names = ("quiet", "light", "state")
        answers = self._store.run_each(
            [(self._marks, [self._store.key(shard_range, name) for name in names], ()) for shard_range in ranges]
        )
        return [Marks(_seconds(min(span, LONGEST_QUIET)), _seconds(took)) for span, took in answers]

    def wake(self, ranges: Iterable[ShardRange]) -> None:
        """Take the quiet marks of ranges away: something may be due earlier than they say."""
        pipeline = self._store.pipeline()
        for shard_range in ranges:
            self.add_wake(pipeline, shard_range)
        self._store.call(pipeline.execute)

    def add_wake(self, pipeline: Any, shard_range: ShardRange) -> int:
        """Add the waking of a range to a pipeline; return how many answers it adds.

        A job in hand leaves no quiet mark then.
        """
        pipeline.set(self._store.key(shard_range, "woken"), "1", px=_WOKEN_KEPT)
        pipeline.delete(self._store.key(shard_range, "quiet"))
        return 2


def _seconds(milliseconds: int) -> float | None:
    return None if milliseconds < 0 else milliseconds / 1000
