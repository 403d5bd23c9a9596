"""Failures that are retried for a window before they count (AIP-17's infra_failure_retry_window). Pure.

A group that one process cannot poke is left to the others, and fails if none of them can poke it for the same window.
A window counts only time in which the pool worked: the time of an outage is not the poke's failure.
"""

from sensorpool.model.states import Outcome
from sensorpool.model.values import Fact, Milliseconds

_TICKS = 3  # the usual bound between two loads of a range, to which the lifetime of a lease is added


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
