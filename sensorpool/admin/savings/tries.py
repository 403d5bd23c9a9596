"""From rows to tries: how a sensor waited, from when to when, how often it was started, and how long it held a slot."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from sensorpool.admin.savings.airflow_rows import STARTED, TryKey, TryRow
from sensorpool.admin.savings.estimate import Mode, SensorTry
from sensorpool.admin.savings.sensors import SensorTask

_OURS = "sensorpool."  # begins the class paths of our triggers
_OVER = frozenset({"success", "failed", "skipped", "up_for_retry", "upstream_failed", "removed"})
_NOT_BEGUN = frozenset({None, "scheduled", "queued", "restarting"})
_SKIPPED = frozenset({"skipped", "upstream_failed", "removed"})  # Airflow sets both dates of what never ran
_MOMENT = 0.001  # seconds


@dataclass(slots=True)
class Logged:
    """What the audit log has of a try.

    :param running_since: the start without an end; None if there is none.
    :param waits: how often it was deferred, or rescheduled, by that event.
    """

    first: float
    starts: int = 0
    held: float = 0.0
    running_since: float | None = None
    waits: Counter[str] = field(default_factory=Counter)


def logged(events: Iterable[tuple[TryKey, str, float]]) -> dict[TryKey, Logged]:
    """Return what the audit log has of each try that it saw start.

    :param events: the oldest first.
    """
    found: dict[TryKey, Logged] = {}
    for key, event, at in events:
        if event == STARTED:
            seen = found.setdefault(key, Logged(at))
            seen.starts, seen.running_since = seen.starts + 1, at
        elif key in found and (since := found[key].running_since) is not None:
            seen = found[key]
            seen.held, seen.running_since = seen.held + at - since, None
            seen.waits[event] += 1
    return found


@dataclass(frozen=True)
class TryReader:
    """Reads tries, and counts what is not known of them.

    :param now: seconds since 1970: tries that have not ended count up to then.
    :param poke_interval: seconds between two pokes where Airflow does not keep them.
    """

    now: float
    poke_interval: float
    unknown: Counter[str]

    def read(
        self, dag_id: str, task: SensorTask, row: TryRow, seen: Logged | None, condition: bytes | None
    ) -> SensorTry | None:
        """Return a try, or None if it has not begun.

        Without the audit log, a try in mode "reschedule" counts as its last start alone.
        """
        if seen is None and (row.start is None or _has_not_begun(row)):
            return None
        ended = row.end if row.state in _OVER and row.end is not None else self.now
        mode = _mode(task, row, seen)
        if seen is None:
            seen = self._inferred(row, mode, ended)
        elif seen.running_since is not None:
            seen.held += max(ended - seen.running_since, 0.0)
        ended = max(ended, seen.first)
        interval = self._interval(task, mode, seen.starts, ended - seen.first)
        return SensorTry(
            dag_id, task.op_classpath, mode, seen.starts, seen.first, ended, seen.held, interval, condition
        )

    def _inferred(self, row: TryRow, mode: Mode, ended: float) -> Logged:
        self.unknown["starts"] += 1
        start = ended if row.start is None else row.start
        if mode is Mode.DEFERRED or row.state == "up_for_reschedule":
            return Logged(start, starts=2 if mode is Mode.DEFERRED and row.state in _OVER else 1)
        return Logged(start, starts=1, held=max(ended - start, 0.0))

    def _interval(self, task: SensorTask, mode: Mode, starts: int, waited: float) -> float:
        if mode is Mode.RESCHEDULE and starts > 1:
            return waited / (starts - 1)
        if task.poke_interval is not None:
            return task.poke_interval
        self.unknown["interval"] += mode is Mode.POKE
        return self.poke_interval


def _has_not_begun(row: TryRow) -> bool:
    if row.state in _NOT_BEGUN:
        return row.trigger is None  # its dates are those of the try before
    return row.state in _SKIPPED and abs((row.end or 0.0) - (row.start or 0.0)) < _MOMENT


def _mode(task: SensorTask, row: TryRow, seen: Logged | None) -> Mode:
    if row.trigger is not None:
        return Mode.POOLED if row.trigger.startswith(_OURS) else Mode.DEFERRED
    if seen is not None and seen.waits["deferred"]:
        return Mode.DEFERRED
    if task.reschedule or (seen is not None and seen.waits["up_for_reschedule"]):
        return Mode.RESCHEDULE
    return Mode.DEFERRED if seen is None and task.deferrable else Mode.POKE
