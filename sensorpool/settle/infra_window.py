"""Infrastructure failures are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure.

So is what one process cannot poke: it is left to the others, and counts when none of them could for the window.
A window counts only time in which the pool worked: what an outage takes is no failure of a poke.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Milliseconds

_RENEWED = 3  # intervals
_SLACK = 60_000  # milliseconds
_LONGEST_POKE = 86_400_000  # milliseconds; one that has not come back by then was lost
_TICKS = 3  # between two loads of a range that is in work: beside a lease that has to end first


def from_then_on(since: Milliseconds, registered_at: Milliseconds, now: Milliseconds) -> Milliseconds:
    """Return since when something counts against a group: not from before it was registered."""
    return min(max(since, registered_at), now)


def outage(last: Milliseconds, now: Milliseconds, lease_ttl: float, tick: float) -> Milliseconds:
    """Return for how long nobody worked on a range before this load of it, beyond what is usual; 0: it is in work.

    :param last: the load before; 0: not known, then all time until now is.
    :param lease_ttl: seconds, as is the tick.
    """
    return max(0, now - last - round((lease_ttl + _TICKS * tick) * 1000))


def moved(since: Milliseconds, by: Milliseconds, now: Milliseconds) -> Milliseconds:
    """Return the begin of a window that does not count an outage which has just ended."""
    return min(since + by, now)


def turn_of_others(poke_interval: Milliseconds, tick: Milliseconds) -> Milliseconds:
    """Return for how long after a deadline a group that this process cannot poke is left to the others.

    Two intervals less a tick: the group is due again within an interval of that, so within three of its deadline (G1).
    """
    return max(0, 2 * poke_interval - tick)


def left_to_others(
    fact: Fact, since: Milliseconds, window: float, turn: Milliseconds, resumed: Milliseconds = 0
) -> Fact | None:
    """Return what it means now that this process cannot poke a group; None while it is the turn of others.

    A deadline counts once others have had their turn after it, and since the group is left to them: so neither a
    process that cannot poke, nor an outage, lets a sensor time out that another process is about to poke. Nor does
    the window end before others have had their turn after an outage, and time to start.

    :param since: when the first process could not poke it that no other has poked since.
    :param window: seconds.
    :param turn: of the others, see `turn_of_others`.
    :param resumed: when the last outage ended.
    """
    waited, span = fact.began_at - max(since, resumed), window * 1000
    if fact.began_at - since >= span and waited >= min(span, max(turn, _SLACK)):
        reason = f"no process could poke it for {window:g} s, the last one: {fact.reason}"
        return fact._replace(outcome=Outcome.UNPOKEABLE, reason=reason)
    return fact._replace(began_at=fact.began_at - turn) if waited >= turn else None


class _Failure(NamedTuple):
    since: Milliseconds
    last: Milliseconds | None = None  # when a poke outside of jobs saw it last; None: a job works on its range
    ends: Milliseconds = 0  # when it has ended, should no poke be seen before


class InfraWindow:
    """Since when groups fail for their infrastructure's sake. Safe to share between threads.

    Two sorts. That of a range in work begins with what the last job left, and lasts for as long as failures are seen:
    time in which no job worked is taken out by `move`. That of groups poked outside of jobs fades: a failure that no
    poke has seen for some intervals has ended, and time in which none was made does not count.

    :param span: seconds for which failures are retried before they count.
    :param since: of a range in work: when the failures began that go on, by group id; None: of pokes outside of jobs.
    """

    def __init__(self, span: float, since: Mapping[int, Milliseconds] | None = None) -> None:
        self._span = span
        self._fades = since is None
        self._failures = {group_id: _Failure(begin) for group_id, begin in (since or {}).items()}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __contains__(self, group_id: int) -> bool:
        return group_id in self._failures

    def since(self) -> dict[int, Milliseconds]:
        """Return when the failures began that go on, by group id."""
        with self._lock:
            return {group_id: failure.since for group_id, failure in self._failures.items()}

    def judge(self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0) -> Fact:
        """Return what a fact means: a failure that has lasted for the span is the poke's error; any other fact ends it.

        :param poke_interval: of the group.
        :param registered_at: when the group was. What is known from before is of another group with its id, of tables
            that were made anew, or restored.
        """
        group_id, began_at = fact.group_id, fact.began_at
        with self._lock:
            known = self._take(group_id, began_at, poke_interval)
            if fact.outcome is not Outcome.INFRA_FAILURE:
                return fact
            since = from_then_on(began_at if known is None else known, registered_at, began_at)
            if began_at - since >= self._span * 1000:
                reason = f"{fact.reason} (for longer than {self._span:g} s)"
                return Fact(group_id, fact.version, began_at, Outcome.POKE_ERROR, reason)
            ends = began_at + _RENEWED * poke_interval + _SLACK
            self._failures[group_id] = _Failure(since, began_at, ends) if self._fades else _Failure(since)
            return fact

    def take_over(self, other: "InfraWindow", group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> None:
        """Go on with a failure that another window knows of, as of a poke that began at a time."""
        if group_id not in other:
            return
        with other._lock:
            since = other._take(group_id, at, poke_interval)
        if since is not None:
            with self._lock:
                self._failures.setdefault(group_id, _Failure(since))

    def leave_to(self, other: "InfraWindow", group_ids: Iterable[int], now: Milliseconds) -> None:
        """Have another window go on with the failures of groups whose pokes go on outside of jobs."""
        with self._lock:
            left = {each: self._failures.pop(each) for each in group_ids if each in self._failures}
        with other._lock:
            for group_id, failure in left.items():
                other._failures[group_id] = _Failure(failure.since, now, now + _LONGEST_POKE)

    def move(self, by: Milliseconds, now: Milliseconds) -> None:
        """Count no outage that has just ended."""
        with self._lock:
            for group_id, failure in self._failures.items():
                self._failures[group_id] = failure._replace(since=moved(failure.since, by, now))

    def long_known(self, now: Milliseconds) -> list[int]:
        """Return the groups that have failed for twice the span: each is gone, or is poked once in a long time."""
        oldest = now - round(2 * self._span * 1000)
        with self._lock:
            return [group_id for group_id, failure in self._failures.items() if failure.since <= oldest]

    def forget(self, group_ids: Iterable[int]) -> None:
        """Forget groups that are gone."""
        with self._lock:
            for group_id in group_ids:
                self._failures.pop(group_id, None)

    def forget_ended(self, now: Milliseconds) -> None:
        """Forget failures that have ended without a poke: those of groups that are gone, or poked elsewhere."""
        with self._lock:
            ended = [
                group_id for group_id, each in self._failures.items() if each.last is not None and now >= each.ends
            ]
            for group_id in ended:
                del self._failures[group_id]

    def _take(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
        """Take a failure out; return since when it lasts, if it does so still."""
        failure = self._failures.pop(group_id, None)
        if failure is None or failure.last is None:
            return failure and failure.since
        unseen = at - failure.last
        if unseen >= _RENEWED * poke_interval + _SLACK:
            return None
        return moved(failure.since, max(0, unseen - poke_interval - _SLACK), at)
