"""The status of a pool, and its overview for the pages. Plain values that print as JSON."""

from contextlib import suppress
from typing import Any

from sensorpool.admin import findings
from sensorpool.admin.conditions import Seen, failing, list_conditions
from sensorpool.admin.look import Look, outage_shown
from sensorpool.admin.working import MOST_CLASSES
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import SensorpoolError, Unreachable
from sensorpool.leases.background_notes import Waiting
from sensorpool.leases.range_state import MISSED, RangeState
from sensorpool.model.states import Ending, State
from sensorpool.model.values import Milliseconds
from sensorpool.model.words import spell_time
from sensorpool.store import callback_rows, conditions, inspecting, late_conditions, troubles
from sensorpool.store.conditions import Order, Wanted

_LATEST = 10  # late conditions that are named


def status(pool: PoolView) -> dict[str, Any]:
    """Return the number of instances by state, the backlogs, the workers, and the state of each shard range.

    :returns: also ``problems`` (what `health` says) and ``warnings`` (what is behind), a line each.
    :raises Unreachable: when the database or Redis does not answer.
    """
    look = Look(pool)
    workers, tick_ms, ranges = look.workers, round(1_000 * look.tick), look.ranges
    states = look.read(inspecting.count_by_state)
    by_range = look.read(inspecting.count_groups, tuple(pool.ranges))
    left, isolated = look.waiting
    found = findings.of_pool(look)
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
        "problems": [each.said for each in found if each.level == "wrong"],
        "warnings": [each.said for each in found if each.level == "warning"],
        "sensing": states.get(State.SENSING, 0),
        "groups": look.read(inspecting.count_waiting)[0],
        "states": {str(state): states.get(state, 0) for state in (*State, Ending.HANDED_BACK)},
        "unpokeable": [each._asdict() for each in look.read(troubles.unpokeable, MOST_CLASSES)],
        "away": [outage_shown(outage) for outage in look.away],
        "budgets": [
            {
                "backends": each.budget.pattern,
                "budget": str(each.budget),
                "waiting": each.waiting,
                "longest_s": round(each.longest, 1),
                "at_once": each.at_once,
            }
            for each in look.budgets
        ],
        "late": look.read(late_conditions.count),
        "quarantined": look.read(troubles.count_quarantined),
        "deaths": [f"{each.worker}: {each.cause}" for each in look.deaths],
        "overrunning": look.read(troubles.count_overrunning),
        "left_over": _waiting(left),
        "wait_apart": _waiting(isolated),
        "callbacks": [
            {
                "task": each.task,
                "waiting": each.waiting,
                "oldest_s": round((look.now - each.oldest) / 1000, 3),
                "cause": each.cause,
            }
            for each in look.read(callback_rows.backlog)
        ],
        "unpublished_s": None if look.unpublished is None else round(look.unpublished, 3),
        "ranges": [
            {
                "shard_min": shard_range.shard_min,
                "shard_max": shard_range.shard_max,
                "holder": holder or state.holder or None,
                "last_tick_at": spell_time(state.last or None),
                "lag_s": _lag(state, look.now, tick_ms),
                "groups": count,
                "pokes": state.pokes,
                "left": len(state.left),
                "isolated": sum(len(each.ids) for each in notes),
            }
            for (shard_range, (holder, state)), count, notes in zip(
                ranges.items(), by_range, look.isolated, strict=True
            )
        ],
    }


def overview(pool: PoolView, seen: Seen) -> dict[str, Any]:
    """Return the answers to four questions: is it alive, is it on time, what hurts, what is late.

    A server that is away is a problem, and what is not known without it is None.

    :param seen: the DAGs whose waiters may be named; None: all.
    """
    found: dict[str, Any] = {"problems": [], "status": None, "failing": {}, "load": None}
    found |= {"lag_s": None, "late_ranges": None, "late": []}
    try:
        pool.workers()
    except Unreachable as error:  # each further question would wait as long for its answer
        return found | {"problems": [str(error)]}
    with suppress(SensorpoolError):
        found["load"] = pool.database.read(conditions.load)._asdict()
        wanted = Wanted(late=True)
        found["late"] = list_conditions(pool, wanted, Order.LATENESS, 0, _LATEST, outcome=None, seen=seen)["conditions"]
    try:
        found["status"] = seen_now = status(pool)
        found["problems"] = seen_now["problems"]
        found["failing"] = {name: dict(counts) for name, counts in sorted(failing(pool).items())}
    except SensorpoolError:
        return found | {"problems": findings.health(pool)}
    lags = [each["lag_s"] for each in seen_now["ranges"] if each["lag_s"] is not None]
    tick = max([pool.settings.tick, *(each["tick"] for each in seen_now["workers"])])
    found["lag_s"] = max(lags, default=None)
    found["late_ranges"] = sum(lag > MISSED * tick for lag in lags) + len(seen_now["ranges"]) - len(lags)
    return found


def _waiting(found: Waiting) -> dict[str, Any]:
    return {"groups": found.groups, "overdue": found.overdue, "longest_s": round(found.seconds, 3)}


def _lag(state: RangeState, now: Milliseconds, tick_ms: Milliseconds) -> float | None:
    """Return by how many seconds a range is late: its last job's lag, or more if its next tick is overdue."""
    if not state.last:
        return None
    overdue = now - state.last - tick_ms
    return round(max(state.lag_ms, overdue, 0) / 1000, 3)
