"""Health: whether a pool does its work. Each problem is one line, with its mend."""

from contextlib import suppress

from sensorpool.admin.problems import (
    died_again_and_again,
    disagreements,
    longest_tick,
    no_triggerer,
    unsettled_problems,
    untold,
)
from sensorpool.client.pool_view import PoolView
from sensorpool.config.version import __version__
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases import complaints, state_file
from sensorpool.leases.complaints import Complaint
from sensorpool.leases.range_state import MISSED, RangeState
from sensorpool.leases.trouble import ROUNDS
from sensorpool.model.values import Milliseconds, ShardRange
from sensorpool.store import migrate
from sensorpool.worker import lateness

Looked = dict[ShardRange, tuple[str | None, RangeState, int]]
"""Holder, state and number of suspects of each range."""


def health(pool: PoolView) -> list[str]:
    """Return a line for each problem; an empty list if all is well."""
    away = no_redis(pool)
    complaining: list[Complaint] = []
    if away is None:
        with suppress(Unreachable):  # `ticks` reports it
            complaining = not_here(pool)
    problems, tick = _look_at_ticks(pool, away)
    problems += [*map(str, complaining), *untold(pool), *_past_deadline(pool, tick)]
    return list(dict.fromkeys(problems))  # several may find the same server away or busy


def no_redis(pool: PoolView) -> Unreachable | None:
    """Return why Redis cannot be used, or None. Asked once, because each question without an answer takes long."""
    try:
        pool.leases.store.probe()
    except Unreachable as error:
        return error
    return None


def not_here(pool: PoolView) -> list[Complaint]:
    """Return which worker cannot poke which class, and why.

    :raises Unreachable: when the database or Redis does not answer.
    """
    told = complaints.found(pool.leases)
    if not told:
        return []
    living = {str(worker) for worker in pool.roster.workers()}
    return complaints.read(told, pool.database.read(pool.database.now), living)


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
        problems += unsettled_problems(pool)
        problems += died_again_and_again(pool.child_deaths.lately())
        problems += lateness.problems(*lateness.who_waits(pool.leases, pool.database, pool.settings, looked))
    except SensorpoolError as error:
        return [*problems, str(error)], tick
    causes: dict[ShardRange, str] = {}
    with suppress(Unreachable):
        causes = pool.trouble.of_jobs(pool.ranges)
        for chore, cause in pool.trouble.of_chores().items():
            problems.append(f"rescue fails at {chore}, for {ROUNDS} rounds and more: {cause}")
    return problems + _missed_ticks(pool, looked, causes, tick, now), tick


def _missed_ticks(
    pool: PoolView, looked: Looked, causes: dict[ShardRange, str], tick: float, now: Milliseconds
) -> list[str]:
    """Return a line for the ranges in which no job has ended for some ticks, with the reason.

    :param causes: why jobs of ranges failed lately.
    :param tick: seconds between two ticks of the pool.
    """
    limit = MISSED * tick
    failing: dict[str, list[ShardRange]] = {}  # why jobs fail, and of which ranges
    stopped: list[str] = []
    for shard_range, (holder, state, _) in looked.items():
        if state.looked_at and (now - state.looked_at) / 1000 <= limit:
            continue
        if shard_range in causes:
            failing.setdefault(causes[shard_range], []).append(shard_range)
        elif (said := _why_late(pool, shard_range, holder, state, limit, now)) is not None:
            stopped.append(said)
    if len(stopped) == len(pool.ranges) > 1 and not any(holder for holder, _, _ in looked.values()):
        stopped = [_all_stopped(pool, max(state.looked_at for _, state, _ in looked.values()), now)]
    for cause, ranges in failing.items():
        which = f"range {ranges[0]}" if len(ranges) == 1 else f"{len(ranges)} ranges ({ranges[0]} and others)"
        stopped.append(f"the jobs of {which} fail: {cause}")
    return stopped


def _why_late(
    pool: PoolView, shard_range: ShardRange, holder: str | None, state: RangeState, limit: float, now: Milliseconds
) -> str | None:
    """Return why a range is late; None if a job takes long but all intervals are longer, which does no harm.

    :param limit: seconds between two jobs that are too many.
    """
    age = (now - state.looked_at) / 1000
    since = f"its last tick was {age:.0f} s ago" if state.looked_at else "no job has finished since Redis started"
    if holder is None:
        return f"range {shard_range} has no holder: {since}"
    if state.looked_at and age < pool.settings.job_time_limit + limit:
        interval = lateness.missed_interval(pool.database, shard_range, age)
        if interval is None:
            return None
        since += f", and groups of it have an interval of {interval:g} s"
    return f"the holder of range {shard_range}, {safe_line(holder, 200)}, is not done with it: {since}"


def _all_stopped(pool: PoolView, latest: Milliseconds, now: Milliseconds) -> str:
    """Return the line for a pool in which no job looks at any range.

    :param latest: the latest load of any range; 0: not known.
    """
    since = f"for {(now - latest) / 1000:.0f} s" if latest else "since Redis started"
    who = "is beat running, and a worker?"
    if pool.settings.embedded:
        who = f"is `sensorpool standalone` running? {state_file.last_written(pool.settings)}"
    from sensorpool.admin.broker import probe_broker  # a probe of a healthy pool imports no broker

    try:
        probe_broker(pool.settings)
    except SensorpoolError as error:
        who = str(error)
    return f"ticks have stopped: no range was looked at {since}; {who}"
