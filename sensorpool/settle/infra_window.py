"""Infrastructure failures are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure.

A group that one process cannot poke is left to the others, and fails if none of them can poke it for the same window.
A window counts only time in which the pool worked: the time of an outage is not the poke's failure.
"""

from collections.abc import Container, Iterable, Mapping

from sensorpool.model.states import Outcome
from sensorpool.model.values import NOTHING_TOLD, Fact, Failing, Milliseconds, Told

_RENEWED = 3  # intervals
_SLACK = 60_000  # milliseconds
_LONGEST_WAIT = 3_600_000  # milliseconds that a group may wait for its poke outside of jobs, beyond its intervals
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


class OutsideWindow:
    """Since when groups fail whose pokes outside of jobs have just ended.

    Any process makes such a poke, so all of them tell each other of the failures. A failure that no poke has seen for
    some intervals has ended, and time without a poke does not count.

    :param span: seconds for which failures are retried before they count.
    :param told: what processes have told of these groups before.
    :ivar failing: what is to be told now, by group id.
    :ivar answered: when pokes began that ended a failure, by group id.
    """

    def __init__(self, span: float, told: Mapping[int, Failing]) -> None:
        self.failing: dict[int, Failing] = {}
        self.answered: dict[int, Milliseconds] = {}
        self._span = span
        self._told = told

    def judge(
        self, fact: Fact, poke_interval: Milliseconds, registered_at: Milliseconds = 0, *, took: Milliseconds = 0
    ) -> Fact:
        """Return the fact that counts: see `RangeFailures.judge`.

        :param took: the duration of the poke: a failure is seen at its end.
        """
        told = self._told.get(fact.group_id)
        known = None if told is None else _lasting(told, fact.began_at, poke_interval)
        counted, since = _judged(fact, known, registered_at, self._span)
        if since is None:
            self.end(fact.group_id, fact.began_at)
        else:
            self.failing[fact.group_id] = Failing(since, fact.began_at + took)
        return counted

    def end(self, group_id: int, at: Milliseconds) -> None:
        """End the failure of a group by a poke that began at ``at``."""
        self.answered[group_id] = at


class RangeFailures:
    """Since when the pokes of a range's groups end in infrastructure failures. Belongs to the thread of a job.

    A failure lasts until a poke ends otherwise, however long no poke is made; `move` takes out the time in which no job
    worked. What pokes outside of jobs have told is taken up here, but for groups that are poked there still.

    :param span: seconds for which failures are retried before they count.
    :param since: what the last job left: since when each failing group fails, by group id.
    :param told: what processes have told of pokes outside of jobs.
    :param apart: the groups that are poked outside of jobs.
    :ivar since: since when each failing group fails, by group id; the job leaves it to the next job.
    :ivar taken: what was told and is in the state that the job leaves, by group id: it is to be told no more.
    """

    def __init__(
        self,
        span: float,
        since: Mapping[int, Milliseconds],
        told: Told = NOTHING_TOLD,
        apart: Container[int] = (),
    ) -> None:
        self.since = dict(since)
        self.taken: dict[int, Failing | Milliseconds] = {
            group_id: at for group_id, at in told.answered.items() if group_id not in apart
        }
        self._span = span
        self._apart: dict[int, Failing] = {}
        self._were_over: set[int] = set()
        for group_id, at in told.answered.items():
            if group_id in self.since and self.since[group_id] <= at:
                del self.since[group_id]
        for group_id, failing in told.failing.items():
            if group_id in apart:
                self._apart[group_id] = failing
                continue
            self.taken[group_id] = failing
            if self.since.get(group_id, 0) <= failing.last:
                self.since[group_id] = min(failing.since, self.since.get(group_id, failing.since))
            if failing.since <= _next_look(failing.last, span):
                self._were_over.add(group_id)

    def __bool__(self) -> bool:
        """Whether any group fails that may be poked in the job."""
        return bool(self.since)

    def judge(self, fact: Fact, registered_at: Milliseconds = 0) -> Fact:
        """Return the fact that counts: a failure that has lasted for the span becomes a poke_error.

        A fact with another outcome ends the failure.

        :param registered_at: the group's registration. An earlier failure belongs to another group with the same id,
            from before the tables were made anew or restored.
        """
        counted, since = _judged(fact, self.since.pop(fact.group_id, None), registered_at, self._span)
        if since is not None:
            self.since[fact.group_id] = since
        if counted is not fact:
            self._were_over.add(fact.group_id)
        return counted

    def end(self, group_id: int) -> None:
        """End the failure of a group whose poke is not judged."""
        self.since.pop(group_id, None)

    def leave_outside(self, group_ids: Iterable[int], now: Milliseconds) -> dict[int, Failing]:
        """Take the failures of groups out whose next poke is outside of jobs; return those that are to be told."""
        left: dict[int, Failing] = {}
        for group_id in group_ids:
            since = self.since.pop(group_id, None)
            if since is not None and group_id not in self._apart:
                left[group_id] = Failing(min(since, now), now)
                self.taken.pop(group_id, None)
        return left

    def move(self, by: Milliseconds, now: Milliseconds) -> None:
        """Move all failures by the length of an outage that has just ended, so that its time does not count."""
        self.since = {group_id: moved(since, by, now) for group_id, since in self.since.items()}

    def may_be_gone(self, now: Milliseconds) -> list[int]:
        """Return the groups that were over, or have failed for twice the span.

        They have settled, or have waiters who came late, or a long interval.
        """
        oldest = now - round(2 * self._span * 1000)
        own = [each for each, since in self.since.items() if since <= oldest or each in self._were_over]
        return own + [group_id for group_id, each in self._apart.items() if each.since <= oldest]

    def forget(self, group_ids: Iterable[int]) -> None:
        """Forget groups that have settled."""
        for group_id in group_ids:
            self.since.pop(group_id, None)
            if (failing := self._apart.pop(group_id, None)) is not None:
                self.taken[group_id] = failing


def _lasting(failing: Failing, at: Milliseconds, poke_interval: Milliseconds) -> Milliseconds | None:
    """Return since when a failure outside of jobs lasts at a time; None if it has ended."""
    unseen = at - failing.last
    if unseen >= _RENEWED * poke_interval + _LONGEST_WAIT:
        return None
    return moved(failing.since, max(0, unseen - poke_interval - _SLACK), at)


def _judged(
    fact: Fact, known: Milliseconds | None, registered_at: Milliseconds, span: float
) -> tuple[Fact, Milliseconds | None]:
    """Return the fact that counts, and since when its group fails from now on; None: it does not.

    :param known: since when it failed before this poke.
    """
    if fact.outcome is not Outcome.INFRA_FAILURE:
        return fact, None
    since = from_then_on(fact.began_at if known is None else known, registered_at, fact.began_at)
    over = _over(fact, since, span)
    return (fact, since) if over is None else (over, _next_look(fact.began_at, span))


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
