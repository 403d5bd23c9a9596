"""Infrastructure failures are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure."""

import threading
from collections.abc import MutableMapping

from sensorpool.model import Fact, Milliseconds
from sensorpool.states import Outcome

_RENEWED = 3  # intervals
_SLACK = 60_000  # milliseconds


def within_window(fact: Fact, since: MutableMapping[str, Milliseconds], window: float) -> Fact:
    """Hold a fact against the window of its group: a failure that has lasted for longer is the poke's error.

    :param since: when the failures that go on began, by group id; kept up to date.
    :param window: seconds.
    """
    name = str(fact.group_id)
    if fact.outcome is not Outcome.INFRA_FAILURE:
        since.pop(name, None)
        return fact
    if fact.began_at - since.setdefault(name, fact.began_at) < window * 1000:
        return fact
    since.pop(name)
    reason = f"{fact.reason} (for longer than {window:g} s)"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.POKE_ERROR, reason)


class Failing:
    """Since when the groups fail that are poked outside of jobs. Safe to share between threads."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Milliseconds, Milliseconds | None]] = {}  # and when they failed last
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._since)

    def put(self, group_id: int, since: Milliseconds) -> None:
        """Go on with a failure that a job knows of."""
        with self._lock:
            self._since[str(group_id)] = (since, None)

    def take(self, group_id: int) -> Milliseconds | None:
        """Let a job go on with it."""
        with self._lock:
            since, _ = self._since.pop(str(group_id), (None, None))
            return since

    def within_window(self, fact: Fact, poke_interval: Milliseconds, window: float) -> Fact:
        """Hold a fact against the window; a failure that nobody saw for some intervals has ended meanwhile."""
        name = str(fact.group_id)
        with self._lock:
            known = {}
            if name in self._since:
                since, last = self._since.pop(name)
                if last is None or fact.began_at - last < _RENEWED * poke_interval + _SLACK:
                    known[name] = since
            held = within_window(fact, known, window)
            if name in known:
                self._since[name] = (known[name], fact.began_at)
            return held
