"""The lines of log for failing pokes: one when a class begins to fail in some way, with the traceback of one poke.

While it goes on failing in that way, it has a line every ten minutes, which says how many pokes have failed.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from sensorpool.instrumentation.logs import logger
from sensorpool.model.states import Outcome
from sensorpool.model.values import Report, Trace
from sensorpool.worker.metrics import Kinds

EVERY = 600.0  # seconds between two lines of one kind of error
_KINDS = 200  # remembered

log = logger(__name__)


class FailingPokes:
    """Counts how classes fail, and logs it. Safe to share between threads.

    :param kinds: returns the class path and the backend of groups (`Cache.kinds`).
    :param is_away: whether a backend is known to be away: its pokes that fail have no lines.
    """

    def __init__(self, kinds: Kinds, is_away: Callable[[str], bool] = lambda _: False) -> None:
        self._kinds_of = kinds
        self._is_away = is_away
        # class path and signature of each error: when its last line was written, and pokes that failed so since then
        self._kinds: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, reports: Sequence[Report]) -> None:
        """Log what is new."""
        failing = [(report, report.trace) for report in reports if report.trace is not None]
        if not failing:
            return
        kinds, now = self._kinds_of([report.group.id for report, _ in failing]), time.monotonic()
        with self._lock:
            lines = [
                (report, trace, path, backend, others)
                for (report, trace), (path, backend) in zip(failing, kinds, strict=True)
                if not (report.outcome is Outcome.INFRA_FAILURE and self._is_away(backend))
                and (others := self._count(path, trace.signature, now)) is not None
            ]
        for line in lines:
            _log(*line)

    def _count(self, path: str, signature: str, now: float) -> int | None:
        """Count a failing poke; return how many had no line since the last one, or None: this one has none either."""
        told, others = self._kinds.get((path, signature), (now - EVERY, 0))
        is_due = now - told >= EVERY
        self._kinds[path, signature] = (now, 0) if is_due else (told, others + 1)
        self._kinds.move_to_end((path, signature))
        if len(self._kinds) > _KINDS:
            self._kinds.popitem(last=False)
        return others if is_due else None


def _log(report: Report, trace: Trace, path: str, backend: str, others: int) -> None:
    fields: dict[str, Any] = {"op_classpath": path or None, "group_id": report.group.id}
    fields |= {"outcome": str(report.outcome), "reason": report.reason}
    if backend and backend != path:
        fields["backend"] = backend
    if others:
        fields["others"] = others
    say = log.warning if report.outcome is Outcome.INFRA_FAILURE else log.error
    say("a poke fails", **fields, traceback=trace.text)
