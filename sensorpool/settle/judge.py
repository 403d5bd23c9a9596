"""What a poke means for its group: the fact that counts, and the group's trouble from now on. Pure: no I/O, no clock.

    healthy ── infrastructure failure ──▶ failing ── for the window ──▶ poke_error
       ▲  └─── died, or overran ────────▶ struck (in a child with others, then alone) ── died alone ──▶ quarantined
       └────── an answer in good time ends any trouble

A failure of the infrastructure is retried for a window before it counts (AIP-17's infra_failure_retry_window). A group
that one process cannot poke is left to the others, and fails if none of them can poke it for the same window. A window
counts only time in which the pool worked: the time of an outage is not the poke's failure.

`decide` turns facts into verdicts.
"""

from typing import NamedTuple

from sensorpool.model.states import Outcome
from sensorpool.model.trouble import ALONE, HEALTHY, LONGEST_CAUSE, Trouble
from sensorpool.model.values import Fact, Milliseconds, Report

_TICKS = 3  # the usual bound between two loads of a range, to which the lifetime of a lease is added


class Rules(NamedTuple):
    """The settings that decide: `Settings` has them by these names.

    :param infra_failure_window: seconds.
    :param crash_limit: strikes after which a group is quarantined; below three counts as three.
    :param overrun_limit: overruns after which a waiter that can poke by itself does so; 0: any number.
    """

    infra_failure_window: float
    crash_limit: int
    overrun_limit: int
    tick_ms: Milliseconds


class Judged(NamedTuple):
    """What a poke means.

    :param fact: what counts for the waiters; None: nothing yet.
    :param trouble: the group's trouble from now on.
    """

    fact: Fact | None
    trouble: Trouble


def judge(report: Report, began_at: Milliseconds, known: Trouble, rules: Rules) -> Judged:
    """Return what a poke means that began at ``began_at``.

    :param known: the group's trouble before.
    """
    group, outcome, window = report.group, report.outcome, rules.infra_failure_window
    fact = Fact(group.id, group.version, began_at, outcome, report.reason, report.xcom_value)
    cause = None if report.reason is None else report.reason[:LONGEST_CAUSE]
    match outcome:
        case Outcome.INFRA_FAILURE:
            fact, since = failed(fact, from_then_on(known.failing_since, group.registered_at, began_at), window)
            kept = known.cause if since == known.failing_since else cause
            return Judged(fact, Trouble(failing_since=since, cause=kept))
        case Outcome.CANNOT_POKE:
            since = from_then_on(known.unpokeable_since, group.registered_at, began_at)
            kept = known.cause if since == known.unpokeable_since else cause
            turn = turn_of_others(group.poke_interval, rules.tick_ms)
            said = left_to_others(fact, since, window, turn)
            return Judged(said, known._replace(unpokeable_since=since, cause=kept))
        case Outcome.POKE_TIMEOUT if report.of_many:  # which group's doing that is, is not known: each is poked apart
            return Judged(None, Trouble(known.strikes, max(known.overruns, 1), cause=cause))
        case Outcome.POKE_TIMEOUT:
            in_a_row = known.overruns + 1
            fact = _counted(fact, in_a_row, rules.overrun_limit)
            return Judged(fact, Trouble(known.strikes, in_a_row, cause=cause))
        case Outcome.CRASHED:
            trouble = struck(known, cause, own_doing=report.own_doing)
            if not report.own_doing:  # the poke of another group may have ended the process: nothing is known
                return Judged(None, trouble)
            return Judged(quarantined(fact, trouble) if is_quarantined(trouble, rules) else fact, trouble)
        case _:
            return Judged(fact, HEALTHY)


def struck(known: Trouble, cause: str | None, *, own_doing: bool = False) -> Trouble:
    """Return the trouble of a group whose process died with a poke of it in hand.

    :param own_doing: whether the process was a child that died by itself, and had no other group. Only such a death
        makes a third strike.
    """
    strikes = known.strikes + 1 if own_doing else max(known.strikes, min(known.strikes + 1, ALONE))
    return Trouble(strikes, known.overruns, cause=cause)


def is_quarantined(trouble: Trouble, rules: Rules) -> bool:
    """Whether a group has so many strikes that its condition is quarantined."""
    return trouble.strikes >= max(rules.crash_limit, ALONE + 1)


def quarantined(fact: Fact, trouble: Trouble) -> Fact:
    """Return the fact that fails the waiters of a quarantined condition."""
    why = f"quarantined: its poke took its process down {trouble.strikes} times, the last time: {trouble.cause}"
    return fact._replace(outcome=Outcome.FAIL, reason=why)


def is_last(fact: Fact) -> bool:
    """Whether waiters that can poke by themselves are handed back after this poke, which overran."""
    return fact.overruns_left is not None and fact.overruns_left <= 0


def _counted(fact: Fact, in_a_row: int, limit: int) -> Fact:
    """Add to the fact of a poke that overran how many more may overrun before waiters are handed back.

    A group whose poke always needs more than its time limit never lands in the pool. A waiter that can poke by itself,
    as Airflow's tasks can, is handed back when the count reaches its limit, and at its deadline.
    """
    left = limit - in_a_row if limit else None
    if in_a_row < 2:
        return fact._replace(overruns_left=left)
    reason = f"{fact.reason}, {in_a_row} times in a row; SENSORPOOL_POKE_TIMEOUT gives it more"
    return fact._replace(reason=reason, overruns_left=left)


# windows


def from_then_on(since: Milliseconds | None, registered_at: Milliseconds, now: Milliseconds) -> Milliseconds:
    """Return the begin of a group's window: not before its registration. None: it begins now."""
    return now if since is None else min(max(since, registered_at), now)


def outage(last: Milliseconds, now: Milliseconds, lease_ttl: float, tick: float) -> Milliseconds:
    """Return for how long no job worked on a range before this load, beyond the usual pause; 0: there was no outage.

    :param last: the time of the load before; 0: not known, then all time until now counts as the outage.
    :param lease_ttl: seconds, like the tick.
    """
    return max(0, now - last - round((lease_ttl + _TICKS * tick) * 1000))


def turn_of_others(poke_interval: Milliseconds, tick: Milliseconds) -> Milliseconds:
    """Return for how long after its deadline a group that this process cannot poke is left to the other processes.

    Two intervals less a tick. The group is due again within one more interval: within three of its deadline (G1).
    """
    return max(0, 2 * poke_interval - tick)


def left_to_others(fact: Fact, since: Milliseconds, window: float, turn: Milliseconds) -> Fact | None:
    """Return the fact of a group that this process cannot poke; None while it is the turn of other processes.

    A deadline counts only after the other processes have had their turn since the deadline, and since the group was
    left to them. So a process that cannot poke times out no sensor that another process is about to poke.

    :param since: since when no process could poke it.
    :param window: seconds.
    :param turn: the turn of the other processes, see `turn_of_others`.
    """
    waited, span = fact.began_at - since, window * 1000
    if waited >= span:
        reason = f"no process could poke it for {window:g} s, the last one: {fact.reason}"
        own = fact.began_at - round(span)  # to one who came later it is as if the window went on
        return fact._replace(outcome=Outcome.UNPOKEABLE, reason=reason, since=own, began_at=fact.began_at - turn)
    return fact._replace(began_at=fact.began_at - turn) if waited >= turn else None


def failed(fact: Fact, since: Milliseconds, window: float) -> tuple[Fact, Milliseconds]:
    """Return the fact that counts for an infrastructure failure, and since when its group fails from now on.

    A failure that has lasted for the window becomes a poke_error. It ends the waits that have lasted for the window
    themselves: a waiter that joined the group later has its own window, and is looked at again after a tenth of it.

    :param since: since when the group fails.
    :param window: seconds.
    """
    if fact.began_at - since < window * 1000:
        return fact, since
    reason = f"{fact.reason} (for longer than {window:g} s)"
    own = fact.began_at - round(window * 1000)
    over = Fact(fact.group_id, fact.version, fact.began_at, Outcome.POKE_ERROR, reason, since=own)
    return over, fact.began_at - round(900 * window)
