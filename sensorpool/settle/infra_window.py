"""Infrastructure failures are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure.

A group that one process cannot poke is left to the others, and fails if none of them can poke it for the same window.
A window counts only time in which the pool worked: the time of an outage is not the poke's failure.
"""

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Failing, Milliseconds

_RENEWED = 3  # intervals
_SLACK = 60_000  # milliseconds
_TICKS = 3  # the usual bound between two loads of a range, to which the lifetime of a lease is added


def from_then_on(since: Milliseconds, registered_at: Milliseconds, now: Milliseconds) -> Milliseconds:
    """Return the begin of a group's window: not before its registration."""
    return min(max(since, registered_at), now)


def outage(last: Milliseconds, now: Milliseconds, lease_ttl: float, tick: float) -> Milliseconds:
    """Return for how long no job worked on a range before this load, beyond the usual pause; 0: there was no outage.

    :param last: the time of the load before; 0: not known, then all time until now counts as the outage.
    :param lease_ttl: seconds, like the tick.
    """
    return max(0, now - last - round((lease_ttl + _TICKS * tick) * 1000))


def moved(since: Milliseconds, by: Milliseconds, now: Milliseconds) -> Milliseconds:
    """Return the begin of a window, moved by the length of an outage that has just ended."""
    return min(since + by, now)


def turn_of_others(poke_interval: Milliseconds, tick: Milliseconds) -> Milliseconds:
    """Return for how long after its deadline a group that this process cannot poke is left to the other processes.

    Two intervals less a tick. The group is due again within one more interval: within three of its deadline (G1).
    """
    return max(0, 2 * poke_interval - tick)


def left_to_others(
    fact: Fact, since: Milliseconds, window: float, turn: Milliseconds, resumed: Milliseconds = 0
) -> Fact | None:
    """Return the fact of a group that this process cannot poke; None while it is the turn of other processes.

    A deadline counts only after the other processes have had their turn since the deadline, and since the group was
    left to them. So neither a process that cannot poke nor an outage times out a sensor that another process is about
    to poke. After an outage, the window does not end before the other processes have had time to start and their turn.

    :param since: since when the group is stranded: a process could not poke it, and no other has poked it since.
    :param window: seconds.
    :param turn: the turn of the other processes, see `turn_of_others`.
    :param resumed: when the last outage ended.
    """
    waited, span = fact.began_at - max(since, resumed), window * 1000
    if fact.began_at - since >= span and waited >= min(span, max(turn, _SLACK)):
        reason = f"no process could poke it for {window:g} s, the last one: {fact.reason}"
        own = fact.began_at - round(span)  # to one who came later it is as if the window went on
        return fact._replace(outcome=Outcome.UNPOKEABLE, reason=reason, since=own, began_at=fact.began_at - turn)
    return fact._replace(began_at=fact.began_at - turn) if waited >= turn else None


class _Failure(NamedTuple):
    since: Milliseconds
    last: Milliseconds  # when a poke saw it last
    ends: Milliseconds  # when it has ended, should no poke be seen before


class InfraWindow:
    """Since when the pokes of groups end in infrastructure failures: one window for each process. Safe to share.

    It keeps the failures of groups that are poked outside of jobs. These fade: a failure that no poke has seen for
    some intervals has ended, and time without a poke does not count. Processes tell each other of them (`learn`). The
    failures of a job's range are in its `RangeFailures`, which takes failures over from here.

    :param span: seconds for which failures are retried before they count.
    """

    def __init__(self, span: float) -> None:
        self.span = span
        self._failures: dict[int, _Failure] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._failures)

    def of_range(self, since: Mapping[int, Milliseconds], outside: dict[int, Failing] | None = None) -> "RangeFailures":
        """Return the failures of a range on which a job begins to work.

        :param since: what the last job left: since when each failing group fails, by group id.
        :param outside: what processes have told of pokes outside of jobs, and what the job judges anew is taken out;
            None: it is not known, and this process goes by what it has seen itself.
        """
        return RangeFailures(self, since, outside)

    def learn(self, told: Mapping[int, Failing], intervals: Mapping[int, Milliseconds]) -> None:
        """Take up what all processes have told of groups before their pokes are judged.

        :param told: by group id; a group that is not in it does not fail, as far as pokes outside of jobs have seen.
        :param intervals: the intervals of all groups that will be judged.
        """
        with self._lock:
            for group_id, interval in intervals.items():
                here, there = self._failures.get(group_id), told.get(group_id)
                if there is None:
                    self._failures.pop(group_id, None)
                    continue
                fades = _RENEWED * interval + _SLACK
                if here is None or there.last - here.last >= fades:
                    self._failures[group_id] = _Failure(*there, there.last + fades)
                elif here.last - there.last < fades:
                    last = max(here.last, there.last)
                    self._failures[group_id] = here._replace(
                        since=min(here.since, there.since), last=last, ends=max(here.ends, last + fades)
                    )

    def failing(self, group_ids: Iterable[int]) -> dict[int, Failing]:
        """Return the failures of these groups; a group without one is not in it."""
        with self._lock:
            known = {group_id: self._failures.get(group_id) for group_id in group_ids}
        return {group_id: Failing(each.since, each.last) for group_id, each in known.items() if each is not None}

    def judge(self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0) -> Fact:
        """Return the fact that counts, for a poke outside of jobs: see `RangeFailures.judge`."""
        group_id, began_at = fact.group_id, fact.began_at
        with self._lock:
            known = self._take(group_id, began_at, poke_interval)
            if fact.outcome is not Outcome.INFRA_FAILURE:
                return fact
            since = from_then_on(began_at if known is None else known, registered_at, began_at)
            if (over := _over(fact, since, self.span)) is not None:
                since = _next_look(began_at, self.span)
            self._failures[group_id] = _Failure(since, began_at, began_at + _RENEWED * poke_interval + _SLACK)
            return over or fact

    def take(
        self, group_id: int, at: Milliseconds, poke_interval: Milliseconds, *, is_told: bool = True
    ) -> Milliseconds | None:
        """Take a failure out, for a poke that began at ``at``; return since when it lasts, or None if it has ended.

        :param is_told: whether all processes know of it; a poke of another one has ended it if they do not.
        """
        if group_id not in self._failures:
            return None
        with self._lock:
            since = self._take(group_id, at, poke_interval)
        return since if is_told else None

    def forget_ended(self, now: Milliseconds) -> None:
        """Forget failures that no poke has seen for long: their groups have settled, or are poked elsewhere."""
        with self._lock:
            for group_id in [group_id for group_id, each in self._failures.items() if now >= each.ends]:
                del self._failures[group_id]

    def _take(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
        failure = self._failures.pop(group_id, None)
        return None if failure is None else _lasting(failure, at, poke_interval)


class RangeFailures:
    """Since when the pokes of a range's groups end in infrastructure failures. Belongs to the thread of a job.

    A failure lasts until a poke ends otherwise, however long no poke is made; `move` takes out the time in which no job
    worked.

    :ivar since: since when each failing group fails, by group id; the job leaves it to the next job.
    """

    def __init__(
        self, window: InfraWindow, since: Mapping[int, Milliseconds], outside: dict[int, Failing] | None
    ) -> None:
        self.since = dict(since)
        self._window = window
        self._goes_by_itself = outside is None
        self._outside = {} if outside is None else outside
        self._ended: set[int] = set()
        self._were_over: set[int] = set()

    def __bool__(self) -> bool:
        """Whether any group may fail: one of the range, or one that was poked outside of jobs."""
        return bool(self.since) or bool(self._outside) or bool(self._window)

    def judge(self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0) -> Fact:
        """Return the fact that counts: a failure that has lasted for the span becomes a poke_error.

        A fact with another outcome ends the failure.

        :param poke_interval: the group's interval.
        :param registered_at: the group's registration. An earlier failure belongs to another group with the same id,
            from before the tables were made anew or restored.
        """
        group_id, began_at = fact.group_id, fact.began_at
        known = self._known(group_id, began_at, poke_interval)
        if fact.outcome is not Outcome.INFRA_FAILURE:
            return fact
        since = from_then_on(began_at if known is None else known, registered_at, began_at)
        if (over := _over(fact, since, self._window.span)) is not None:
            since = _next_look(began_at, self._window.span)
            self._were_over.add(group_id)
        self.since[group_id] = since
        return over or fact

    def _known(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
        """Return since when a group fails, as far as is known before a poke that began at ``at``; it is taken out."""
        told = self._outside.pop(group_id, None)
        if told is not None:
            self._ended.add(group_id)
        outside = None if told is None else _lasting(told, at, poke_interval)
        is_told = self._goes_by_itself or told is not None
        here = self._window.take(group_id, at, poke_interval, is_told=is_told)
        known = (self.since.pop(group_id, None), here, outside)
        return min((since for since in known if since is not None), default=None)

    def end(self, group_id: int, at: Milliseconds, poke_interval: Milliseconds) -> None:
        """End the failure of a group whose poke began at ``at``, and is not judged."""
        self._known(group_id, at, poke_interval)

    def take_ended(self) -> set[int]:
        """Return the groups whose failures outside of jobs count no more: the job has judged a poke of theirs."""
        ended, self._ended = self._ended, set()
        return ended

    def leave_outside(self, group_ids: Iterable[int], now: Milliseconds) -> dict[int, Failing]:
        """Take the failures of groups out whose next poke is outside of jobs; all processes are to be told of them."""
        return {each: Failing(self.since.pop(each), now) for each in group_ids if each in self.since}

    def move(self, by: Milliseconds, now: Milliseconds) -> None:
        """Move all failures by the length of an outage that has just ended, so that its time does not count."""
        self.since = {group_id: moved(since, by, now) for group_id, since in self.since.items()}

    def may_be_gone(self, now: Milliseconds) -> list[int]:
        """Return the groups that were over, or have failed for twice the span.

        They have settled, or have waiters who came late, or a long interval.
        """
        oldest = now - round(2 * self._window.span * 1000)
        own = [each for each, since in self.since.items() if since <= oldest or each in self._were_over]
        return own + [group_id for group_id, each in self._outside.items() if each.since <= oldest]

    def forget(self, group_ids: Iterable[int]) -> None:
        """Forget groups that have settled."""
        for group_id in group_ids:
            self.since.pop(group_id, None)
            if self._outside.pop(group_id, None) is not None:
                self._ended.add(group_id)


def _lasting(failure: Failing | _Failure, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
    """Return since when a failure outside of jobs lasts at a time; None if it has ended."""
    unseen = at - failure.last
    if unseen >= _RENEWED * poke_interval + _SLACK:
        return None
    return moved(failure.since, max(0, unseen - poke_interval - _SLACK), at)


def _next_look(began_at: Milliseconds, span: float) -> Milliseconds:
    """Return the begin of a failure that was over: waiters who came late are looked at again after a tenth of the span.

    It costs a settle, so not after each poke.
    """
    return began_at - round(900 * span)


def _over(fact: Fact, since: Milliseconds, span: float) -> Fact | None:
    """Return the poke_error that a failure becomes after the span (seconds); None while it is retried.

    It ends the waits that have lasted for the span themselves: a waiter that joined the group later has its own window.
    """
    if fact.began_at - since < span * 1000:
        return None
    reason = f"{fact.reason} (for longer than {span:g} s)"
    since = fact.began_at - round(span * 1000)
    return Fact(fact.group_id, fact.version, fact.began_at, Outcome.POKE_ERROR, reason, since=since)
