"""The status of a pool: its waiters, its results, and each shard range. Plain values that print as JSON."""

from typing import Any

from sensorpool.admin import backends
from sensorpool.admin.health import MOST_CLASSES, health
from sensorpool.admin.problems import longest_tick
from sensorpool.client.pool_view import PoolView
from sensorpool.leases.range_state import MISSED, RangeState
from sensorpool.model.states import Ending, State
from sensorpool.model.times import spell_time
from sensorpool.model.values import Milliseconds
from sensorpool.store import admission, callbacks, inspecting, late_conditions, troubles
from sensorpool.worker import lateness


def status(pool: PoolView) -> dict[str, Any]:
    """Return the number of instances by state, the backlogs, the workers, and the state of each shard range.

    :raises Unreachable: when the database or Redis does not answer.
    """
    database, workers = pool.database, pool.workers()
    tick_ms = round(1_000 * longest_tick(pool, workers))
    states = database.read(inspecting.count_by_state)
    groups, _ = database.read(inspecting.count_waiting)
    by_range = database.read(inspecting.count_groups, pool.ranges)
    now, oldest = database.read(database.now), database.read(inspecting.oldest_unpublished)
    looked = dict(zip(pool.ranges, pool.leases.look(pool.ranges), strict=True))
    isolated = pool.leases.isolated(pool.ranges)
    left, wait_apart = lateness.who_waits([state for _, state in looked.values()], isolated)
    ranges = [
        {
            "shard_min": shard_range.shard_min,
            "shard_max": shard_range.shard_max,
            "holder": holder or _recent_holder(state, now, tick_ms),
            "last_tick_at": spell_time(state.last or None),
            "lag_s": _lag(state, now, tick_ms),
            "groups": count,
            "pokes": state.pokes,
            "left": len(state.left),
            "isolated": sum(len(each.ids) for each in found),
        }
        for (shard_range, (holder, state)), count, found in zip(looked.items(), by_range, isolated, strict=True)
    ]
    return {
        "pool": pool.pool_id.get(),
        "workers": [
            {
                "worker": str(worker),
                "pool": worker.terms.pool_id,
                "shards": worker.terms.shards,
                "shard_code_upper_limit": worker.terms.shard_code_upper_limit,
                "tick": worker.tick,
                "version": worker.version,
            }
            for worker in workers
        ],
        "beat_s": pool.roster.beat_age(),
        "problems": health(pool),
        "sensing": states.get(State.SENSING, 0),
        "groups": groups,
        "states": {str(state): states.get(state, 0) for state in (*State, Ending.HANDED_BACK)},
        "unpokeable": [each._asdict() for each in database.read(troubles.unpokeable, MOST_CLASSES)],
        "away": [backends.shown(outage) for outage in backends.away(pool).values()],
        "budgets": backends.budgets(pool),
        "late": database.read(late_conditions.count),
        "quarantined": database.read(admission.count_quarantined),
        "deaths": [f"{each.worker}: {each.cause}" for each in pool.child_deaths.lately()],
        "overrunning": database.read(troubles.count_overrunning),
        "left_over": {"groups": left.groups, "overdue": left.overdue, "longest_s": round(left.seconds, 3)},
        "wait_apart": {
            "groups": wait_apart.groups,
            "overdue": wait_apart.overdue,
            "longest_s": round(wait_apart.seconds, 3),
        },
        "dags_over_quota": database.read(admission.dags_over_quota),
        "callbacks": [
            {
                "task": each.task,
                "waiting": each.waiting,
                "oldest_s": round((now - each.oldest) / 1000, 3),
                "cause": each.cause,
            }
            for each in database.read(callbacks.backlog)
        ],
        "unpublished_s": None if oldest is None else round((now - oldest) / 1000, 3),
        "ranges": ranges,
    }


def _lag(state: RangeState, now: Milliseconds, tick_ms: Milliseconds) -> float | None:
    """Return by how many seconds a range is late: its last job's lag, or more if its next tick is overdue."""
    if not state.last:
        return None
    overdue = now - state.last - tick_ms
    return round(max(state.lag_ms, overdue, 0) / 1000, 3)


def _recent_holder(state: RangeState, now: Milliseconds, tick_ms: Milliseconds) -> str | None:
    """Return the last holder of the lease, if it had the lease lately: between two jobs the lease is free."""
    if not state.last or now - state.last > MISSED * tick_ms:
        return None
    return state.holder or None
