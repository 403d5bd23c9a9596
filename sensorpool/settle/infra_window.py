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
    """Return for how long no job worked on a range before this load of it, beyond what is usual; 0: it is in work.

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
    last: Milliseconds  # when a poke saw it last
    ends: Milliseconds  # when it has ended, should no poke be seen before


class InfraWindow:
    """Since when groups fail for their infrastructure's sake: one a process. Safe to share between threads.

    It keeps the failures of groups that are poked outside of jobs. These fade: a failure that no poke has seen for
    some intervals has ended, and time in which no poke was made does not count. The failures of a range in work are
    kept in its `RangeFailures`, which takes over what is known here.

    :param span: seconds for which failures are retried before they count.
    """

    def __init__(self, span: float) -> None:
        self.span = span
        self._failures: dict[int, _Failure] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._failures)

    def of_range(self, since: Mapping[int, Milliseconds]) -> "RangeFailures":
        """Return the failures of a range that comes into work.

        :param since: what the last job left: when the failures began that go on, by group id.
        """
        return RangeFailures(self, since)

    def judge(self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0) -> Fact:
        """Return what a fact of a poke outside of jobs means: see `RangeFailures.judge`."""
        group_id, began_at = fact.group_id, fact.began_at
        with self._lock:
            known = self._take(group_id, began_at, poke_interval)
            if fact.outcome is not Outcome.INFRA_FAILURE:
                return fact
            since = from_then_on(began_at if known is None else known, registered_at, began_at)
            if (over := _over(fact, since, self.span)) is not None:
                return over
            self._failures[group_id] = _Failure(since, began_at, began_at + _RENEWED * poke_interval + _SLACK)
            return fact

    def take(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
        """Take a failure out, as of a poke that began at a time; return since when it lasts, if it does so still."""
        if group_id not in self._failures:
            return None
        with self._lock:
            return self._take(group_id, at, poke_interval)

    def keep(self, since: Mapping[int, Milliseconds], now: Milliseconds) -> None:
        """Keep failures of groups, by id, whose pokes go on outside of jobs."""
        with self._lock:
            for group_id, begin in since.items():
                self._failures[group_id] = _Failure(begin, now, now + _LONGEST_POKE)

    def forget_ended(self, now: Milliseconds) -> None:
        """Forget failures that have ended without a poke: those of groups that are gone, or poked elsewhere."""
        with self._lock:
            for group_id in [group_id for group_id, each in self._failures.items() if now >= each.ends]:
                del self._failures[group_id]

    def _take(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
        failure = self._failures.pop(group_id, None)
        if failure is None:
            return None
        unseen = at - failure.last
        if unseen >= _RENEWED * poke_interval + _SLACK:
            return None
        return moved(failure.since, max(0, unseen - poke_interval - _SLACK), at)


class RangeFailures:
    """Since when groups of a range in work fail for their infrastructure's sake. Belongs to the thread of a job.

    A failure lasts for as long as no poke says otherwise, however long no poke is made: time in which no job worked is
    taken out by `move`.

    :ivar since: when the failures began that go on, by group id; the job leaves them to the next one.
    """

    def __init__(self, window: InfraWindow, since: Mapping[int, Milliseconds]) -> None:
        self.since = dict(since)
        self._window = window

    def __bool__(self) -> bool:
        """Whether any group may fail: one of the range, or one that was poked outside of jobs."""
        return bool(self.since) or bool(self._window)

    def judge(self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0) -> Fact:
        """Return what a fact means: a failure that has lasted for the span is the poke's error; any other fact ends it.

        :param poke_interval: of the group.
        :param registered_at: when the group was. What is known from before is of another group with its id, of tables
            that were made anew, or restored.
        """
        group_id, began_at = fact.group_id, fact.began_at
        outside = self._window.take(group_id, began_at, poke_interval)
        known = self.since.pop(group_id, outside)
        if fact.outcome is not Outcome.INFRA_FAILURE:
            return fact
        since = from_then_on(began_at if known is None else known, registered_at, began_at)
        if (over := _over(fact, since, self._window.span)) is not None:
            return over
        self.since[group_id] = since
        return fact

    def leave_outside(self, group_ids: Iterable[int], now: Milliseconds) -> None:
        """Leave the failures of groups whose pokes go on outside of jobs to the window of the process."""
        self._window.keep({each: self.since.pop(each) for each in group_ids if each in self.since}, now)

    def move(self, by: Milliseconds, now: Milliseconds) -> None:
        """Count no outage that has just ended."""
        self.since = {group_id: moved(since, by, now) for group_id, since in self.since.items()}

    def long_known(self, now: Milliseconds) -> list[int]:
        """Return the groups that have failed for twice the span: each is gone, or is poked once in a long time."""
        oldest = now - round(2 * self._window.span * 1000)
        return [group_id for group_id, since in self.since.items() if since <= oldest]

    def forget(self, group_ids: Iterable[int]) -> None:
        """Forget groups that are gone."""
        for group_id in group_ids:
            self.since.pop(group_id, None)


def _over(fact: Fact, since: Milliseconds, span: float) -> Fact | None:
    """Return the poke's error that a failure has become after the span, in seconds; None while it is retried."""
    if fact.began_at - since < span * 1000:
        return None
    reason = f"{fact.reason} (for longer than {span:g} s)"
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.POKE_ERROR, reason)
