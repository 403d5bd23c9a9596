"""From rows to tries: how a sensor waited, from when to when, how often it was started, and how long it held a slot."""

from dataclasses import dataclass

from sensorpool.admin.savings.airflow_rows import InstanceRow, Reschedules, Starts
from sensorpool.admin.savings.values import Mode, SensorTask, SensorTry, Unknown

OURS = "sensorpool."  # begins the class paths of our triggers
_OVER = frozenset({"success", "failed", "skipped", "up_for_retry", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({None, "scheduled", "queued", "restarting"})
_SKIPPED = frozenset({"skipped", "upstream_failed", "removed"})  # Airflow sets both dates of what never ran
_MOMENT = 0.001  # seconds


@dataclass(frozen=True)
class Records:
    """What there is of a try beside its own row.

    :param starts: from the audit log.
    :param reschedules: of the current try only.
    :param pooled: whether the pool has an instance of it.
    """

    starts: Starts | None = None
    reschedules: Reschedules | None = None
    pooled: bool = False


class TryReader:
    """Reads tries, and counts what is not known of them.

    :param now: seconds since 1970: tries that have not ended count up to then.
    :param assumed_interval: seconds between two pokes where Airflow does not keep them.
    """

    def __init__(self, now: float, assumed_interval: float, unknown: Unknown) -> None:
        self._now = now
        self._assumed_interval = assumed_interval
        self._unknown = unknown

    def read(
        self, dag_id: str, task: SensorTask, row: InstanceRow, records: Records, condition: bytes | None
    ) -> SensorTry | None:
        """Return a try, or None if it has not begun."""
        seen = records.starts
        if seen is None and (row.start is None or _has_not_begun(row, records.reschedules)):
            return None
        ended = row.end if row.state in _OVER and row.end is not None else self._now
        mode = _mode(task, row, records)
        if seen is not None:
            begun, starts = seen.first, seen.starts
            held = _held(seen, ended)
        else:
            begun, starts, held = self._inferred(task, row, records.reschedules, mode, ended)
        ended = max(ended, begun)
        interval = self._interval(task, mode, starts, ended - begun, records.reschedules)
        return SensorTry(dag_id, task.op_classpath, mode, starts, begun, ended, held, interval, condition)

    def _inferred(
        self, task: SensorTask, row: InstanceRow, rescheduled: Reschedules | None, mode: Mode, ended: float
    ) -> tuple[float, int, float]:
        """Return the begin, the starts and the held seconds of a try whose starts are not in the audit log."""
        self._unknown.starts += 1
        start = row.start if row.start is not None else ended
        ran = max(ended - start, 0.0)
        if mode is Mode.RESCHEDULE:
            # the row has the last start only; the others count as long as that
            before = rescheduled.times if rescheduled else 0
            waits = row.state == "up_for_reschedule"
            starts = max(before if waits else before + 1, 1)
            begun = min(start, rescheduled.first) if rescheduled else start
            return begun, starts, 0.0 if waits else ran * starts
        if mode is Mode.POKE:
            self._unknown.deferral += task.has_trigger and task.deferrable is not False
            return start, 1, ran
        return start, 2 if row.state in _OVER else 1, 0.0

    def _interval(
        self, task: SensorTask, mode: Mode, starts: int, waited: float, rescheduled: Reschedules | None
    ) -> float:
        if mode is Mode.RESCHEDULE:
            if rescheduled is not None and rescheduled.times:
                return max(rescheduled.pauses / rescheduled.times, 0.0)
            if starts > 1:
                return waited / (starts - 1)
        if task.poke_interval is not None:
            return task.poke_interval
        self._unknown.interval += mode is Mode.POKE
        return self._assumed_interval


def _has_not_begun(row: InstanceRow, rescheduled: Reschedules | None) -> bool:
    if row.state in _NOT_BEGUN:
        return rescheduled is None and row.trigger is None  # its dates are those of the try before
    never_ran = row.state in _SKIPPED and row.start is not None and row.end is not None
    return never_ran and abs((row.end or 0.0) - (row.start or 0.0)) < _MOMENT


def _mode(task: SensorTask, row: InstanceRow, records: Records) -> Mode:
    seen = records.starts
    if records.pooled or (row.trigger or "").startswith(OURS):
        return Mode.POOLED
    if row.trigger is not None or (seen is not None and seen.deferrals):
        return Mode.DEFERRED
    if task.reschedule or records.reschedules is not None or (seen is not None and seen.reschedules):
        return Mode.RESCHEDULE
    return Mode.DEFERRED if seen is None and task.deferrable else Mode.POKE


def _held(seen: Starts, ended: float) -> float:
    """Return the seconds between starts and ends; a start without an end ran to the end of its try."""
    missing = max(seen.starts - seen.ends, 0)
    longest = max(ended - seen.first, 0.0)
    return min(max(seen.ended + missing * ended - seen.started, 0.0), longest) if seen.ends <= seen.starts else longest
