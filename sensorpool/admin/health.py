"""Health: whether a pool does its work. Each problem is one line, with its mend."""

from collections.abc import Sequence
from contextlib import suppress

from sensorpool.admin import backends
from sensorpool.admin.problems import (
    died_again_and_again,
    disagreements,
    longest_tick,
    no_triggerer,
    untold,
)
from sensorpool.client.pool_view import PoolView
from sensorpool.config.version import __version__
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.redaction import printable, safe_line
from sensorpool.leases import state_file
from sensorpool.leases.range_state import MISSED, RangeState
from sensorpool.leases.trouble import ROUNDS
from sensorpool.model.terms import LiveWorker
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.model.words import counted
from sensorpool.store import migrate, troubles
from sensorpool.worker import lateness

STOPPED = "ticks have stopped"  # how the line begins that says that nothing is poked
MOST_CLASSES = 20  # that are named
BEAT_AWAY = 12.0  # seconds: beat makes a note every ten

Looked = dict[ShardRange, tuple[str | None, RangeState]]
"""Holder and state of each range."""


def health(pool: PoolView) -> list[str]:
    """Return a line for each problem; an empty list if all is well."""
    away = no_redis(pool)
    more: list[str] = []
    with suppress(Unreachable):  # `ticks` reports it
        more += unpokeable(pool)
        if away is None:
            more += backends.problems(pool)
    problems, tick = _look_at_ticks(pool, away)
    problems += [*more, *untold(pool), *_past_deadline(pool, tick)]
    return list(dict.fromkeys(problems))  # several may find the same server away or busy


def no_redis(pool: PoolView) -> Unreachable | None:
    """Return why Redis cannot be used, or None. Asked once, because each question without an answer takes long."""
    try:
        pool.leases.store.probe()
    except Unreachable as error:
        return error
    return None


def unpokeable(pool: PoolView) -> list[str]:
    """Return a line for each class that no process could poke, and why.

    :raises Unreachable: when the database does not answer.
    """
    return [
        f"{counted(each.groups, 'condition')} of {printable(each.op_classpath)} cannot be poked: "
        f"{safe_line(each.cause or 'no process says why', 300)}"
        for each in pool.database.read(troubles.unpokeable, MOST_CLASSES)
    ]


def _past_deadline(pool: PoolView, tick: float | None) -> list[str]:
    """Return a line for groups that nothing settles at their deadline.

    :param tick: as `_look_at_ticks` returns it.
    """
    if tick is None:
        return []
    try:
        return lateness.past_deadline(pool.database, tick, pool.settings.poke_timeout)
    except SensorpoolError as error:
        return [str(error)]


def ticks(pool: PoolView, away: Unreachable | None = None) -> list[str]:
    """Return a line for each reason why jobs do not look at the ranges.

    :param away: the answer of `no_redis`, so that Redis is not asked again.
    """
    problems, _ = _look_at_ticks(pool, away)
    return problems


def _look_at_ticks(pool: PoolView, away: Unreachable | None) -> tuple[list[str], float | None]:
    """Return the lines of `ticks`, and the pool's tick in seconds: this process's if Redis does not say.

    The tick is None where a problem keeps it from being asked for.
    """
    problems: list[str] = []
    try:
        migrate.check(pool.database, __version__)
        now = pool.database.read(pool.database.now)
        if pool.database.is_read_only():
            problems.append(
                f"the database {pool.database.where} is read-only: nothing can be settled; is it a standby?"
            )
    except SensorpoolError as error:
        return [str(error)], None
    if away is not None:
        return [*problems, str(away)], pool.settings.tick
    tick: float | None = None
    try:
        workers = pool.workers()
        tick = longest_tick(pool, workers)
        problems += disagreements(pool, workers)
        looked = dict(zip(pool.ranges, pool.leases.look(pool.ranges), strict=True))
        problems += no_triggerer(pool)
        problems += died_again_and_again(pool.child_deaths.lately())
        states = [state for _, state in looked.values()]
        problems += lateness.problems(*lateness.who_waits(states, pool.leases.isolated(pool.ranges)))
    except SensorpoolError as error:
        return [*problems, str(error)], tick
    causes: dict[ShardRange, str] = {}
    with suppress(Unreachable):
        causes = pool.trouble.of_jobs(pool.ranges)
        for chore, cause in pool.trouble.of_chores().items():
            problems.append(f"rescue fails at {chore}, for {ROUNDS} rounds and more: {cause}")
    try:
        return problems + _missed_ticks(pool, workers, looked, causes, tick, now), tick
    except Unreachable as error:
        return [*problems, str(error)], tick


def _missed_ticks(
    pool: PoolView,
    workers: Sequence[LiveWorker],
    looked: Looked,
    causes: dict[ShardRange, str],
    tick: float,
    now: Milliseconds,
) -> list[str]:
    """Return a line for each reason why no job has ended for some ticks in some ranges.

    :param causes: why jobs of ranges failed lately.
    :param tick: seconds between two ticks of the pool.
    """
    limit = MISSED * tick
    failing: dict[str, list[ShardRange]] = {}  # why jobs fail, and of which ranges
    free: list[ShardRange] = []
    held: list[str] = []
    for shard_range, (holder, state) in looked.items():
        if state.last and (now - state.last) / 1000 <= limit:
            continue
        if shard_range in causes:
            failing.setdefault(causes[shard_range], []).append(shard_range)
        elif holder is None:
            free.append(shard_range)
        elif (said := _why_held(pool, shard_range, holder, state, limit, now)) is not None:
            held.append(said)
    lines = [f"the jobs of {_named(ranges)} fail: {cause}" for cause, ranges in failing.items()]
    if held:
        lines.append(held[0] + (f"; so are {counted(len(held) - 1, 'other range')}" if len(held) > 1 else ""))
    if free:
        latest = max(looked[each][1].last for each in free)
        since = f"for {(now - latest) / 1000:.0f} s" if latest else "since Redis started"
        who = _who_is_away(pool, workers, limit, all_free=len(free) == len(looked))
        which = "any range" if len(free) == len(looked) else _named(free)
        lines.append(f"{STOPPED}: {who or 'the workers may be busy'}; no job has looked at {which} {since}")
    return lines


def _named(ranges: Sequence[ShardRange]) -> str:
    return f"range {ranges[0]}" if len(ranges) == 1 else f"{len(ranges)} ranges ({ranges[0]} and others)"


def _why_held(
    pool: PoolView, shard_range: ShardRange, holder: str, state: RangeState, limit: float, now: Milliseconds
) -> str | None:
    """Return why a range is late; None if its job takes long but all intervals are longer, which does no harm.

    :param limit: seconds between two jobs that are too many.
    """
    age = (now - state.last) / 1000
    since = f"its last tick was {age:.0f} s ago" if state.last else "no job has finished since Redis started"
    if state.last and age < pool.settings.job_time_limit + limit:
        interval = lateness.missed_interval(pool.database, shard_range, age)
        if interval is None:
            return None
        since += f", and groups of it have an interval of {interval:g} s"
    return f"the holder of range {shard_range}, {safe_line(holder, 200)}, is not done with it: {since}"


def _who_is_away(pool: PoolView, workers: Sequence[LiveWorker], limit: float, *, all_free: bool) -> str | None:
    """Return which part of the pool is not running, or cannot be reached; None if that is not known.

    :param limit: seconds without a note of beat after which it is away.
    :param all_free: whether no range has been looked at.
    :raises Unreachable: when Redis does not answer.
    """
    if pool.settings.embedded:
        return state_file.last_written(pool.settings) if all_free else None
    from sensorpool.admin.broker import probe_broker  # a probe of a healthy pool imports no broker

    try:
        probe_broker(pool.settings)
    except SensorpoolError as error:
        return str(error)
    age = pool.roster.beat_age()
    away = [] if workers else ["no worker is running (start `celery -A sensorpool worker`)"]
    if age is None or age > max(limit, BEAT_AWAY):
        seen = "" if age is None else f", last seen {age:.0f} s ago"
        away.append(f"beat is not running{seen} (start `celery -A sensorpool beat`)")
    return ", and ".join(away) or None
