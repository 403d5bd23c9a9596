"""The lines of log for failing pokes: one when a group begins to fail, or fails in another way, with the traceback.

Many groups that fail in the same way, as when their backend is down, are one line a minute, which says how many.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.model.not_landed import NotLanded
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, Trace
from sensorpool.worker.metrics import Kinds

EVERY = 60.0  # seconds between two lines of one kind of error
_GROUPS, _KINDS = 10_000, 200  # remembered

log = logger(__name__)


@dataclass(slots=True)
class _Kind:
    """An error as groups of one class raise it.

    :param told: when its last line was written, by the monotonic clock.
    :param others: groups that began to fail so since then.
    """

    told: float
    others: int = 0


class FailingPokes:
    """Remembers how groups fail, and logs what changes. Safe to share between threads.

    :param kinds: returns the class path and the backend of groups (`Cache.kinds`).
    :param is_away: whether a backend is known to be away: its pokes that fail have no lines.
    """

    def __init__(
        self,
        kinds: Kinds,
        is_away: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._kinds_of = kinds
        self._is_away = is_away
        self._how: OrderedDict[int, str] = OrderedDict()  # the signature of each group that fails
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, reports: Sequence[Report]) -> None:
        """Log each change."""
        failing = [(report, report.trace) for report in reports if report.trace is not None]
        if not failing and not self._how:
            return
        with self._lock:
            if self._how:
                for report in reports:
                    if report.trace is None:
                        self._how.pop(report.group.id, None)
            lines = [line for report, trace in failing if (line := self._line(report, trace)) is not None]
        for outcome, fields in lines:
            say = log.warning if outcome is Outcome.INFRA_FAILURE else log.error
            say("a poke fails", **fields)

    def fail_no_more(self, many: Iterable[NotLanded]) -> None:
        """Forget how groups failed whose poke found nothing now."""
        if self._how:
            with self._lock:
                for group_id in self._how.keys() & {group_id for each in many for group_id in each.ids}:
                    del self._how[group_id]

    def _line(self, report: Report, trace: Trace) -> tuple[Outcome, dict[str, Any]] | None:
        """Return a line for a group that fails otherwise than before; None if not, or if its kind was just told."""
        group_id, signature = report.group.id, trace.signature
        is_known = self._how.get(group_id) == signature
        _put(self._how, group_id, signature, _GROUPS)
        if is_known:
            return None
        [(path, backend)], now = self._kinds_of([group_id]), time.monotonic()
        if report.outcome is Outcome.INFRA_FAILURE and self._is_away(backend):
            return None
        kind = self._kinds.get((path, signature))
        if kind is not None and now - kind.told < EVERY:
            kind.others += 1
            return None
        fields: dict[str, Any] = {
            "op_classpath": path or None,
            "group_id": group_id,
            "outcome": str(report.outcome),
            "reason": report.reason,
        }
        if backend and backend != path:
            fields["backend"] = backend
        if kind is not None and kind.others:
            fields["others"] = kind.others
        _put(self._kinds, (path, signature), _Kind(now), _KINDS)
        return report.outcome, fields | {"traceback": trace.text}


def _put(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Keep a value as the newest one; drop the oldest one of too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
