"""The last and the next poke of an instance's condition, with the reasons: a part of `show`."""

from collections.abc import Collection
from typing import Any

from sensorpool.admin.look import outage_said
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Unreachable
from sensorpool.leases.budgets import BudgetsLeft
from sensorpool.leases.outages import Outages
from sensorpool.leases.poke_log import Poked, pokes_of
from sensorpool.model.budgets import Budgets
from sensorpool.model.due import next_period_at
from sensorpool.model.sparse import FACTOR
from sensorpool.model.states import State
from sensorpool.model.times import spell_time
from sensorpool.model.usual_landing import earliest, family_of
from sensorpool.model.values import Milliseconds
from sensorpool.store import inspecting, troubles
from sensorpool.store.usual_landings import UsualLandings

SHOWN_POKES = 20
NOT_KEPT = "not known: Redis keeps the pokes of some intervals, and so many of each shard range"


def add_last(pool: PoolView, shown: dict[str, Any]) -> None:
    """Add the last pokes, as far as Redis remembers them, and the traceback of the last one if it raised an error."""
    try:
        if shown["unreachable"] is not None:  # a further question would wait as long
            raise Unreachable(shown["unreachable"])
        records = pool.leases.poke_log.history(pool.range_of(shown["shardcode"]))
        pokes = pokes_of(records, shown["group_id"], SHOWN_POKES)
    except Unreachable as error:
        shown["last_outcome"], shown["unreachable"] = "not known: Redis cannot be asked", str(error)
        return
    if pokes:
        poked, shown["last_pokes"] = pokes[-1], [_shown(each) for each in pokes]
        shown["last_poke_at"], shown["last_outcome"] = spell_time(poked.at), str(poked.outcome)
        shown["last_reason"], shown["traceback"] = poked.reason, poked.traceback
    elif shown["state"] == State.SENSING:
        shown["last_outcome"] = NOT_KEPT


def _shown(poked: Poked) -> dict[str, Any]:
    return {
        "at": spell_time(poked.at),
        "outcome": str(poked.outcome),
        "seconds": poked.seconds,
        "reason": poked.reason,
    }


def add_next(
    pool: PoolView, shown: dict[str, Any], group: Any, now: Milliseconds, dag_ids: Collection[str] | None = None
) -> None:
    """Add when the group is due next, and why.

    :param dag_ids: the DAGs whose deadlines may be told; None: all.
    """
    interval = max(1, group["poke_interval"])  # 0 is an edited row
    at = next_period_at(now, interval, group["phase"])
    because = f"every {interval / 1000:g} s"
    if (until := _sparse_until(pool, group, interval, now)) is not None and now < until + interval:
        shown["is_sparse"] = True  # the poke before was a sparse one, perhaps
    if until is not None and now < until:
        in_turn = next_period_at(until - 1, interval, group["phase"])
        at = min(in_turn, next_period_at(now, FACTOR * interval, group["phase"]))
        because = f"every {FACTOR * interval / 1000:g} s: it never landed so early"
        if dag_ids is None:  # others could conclude when a condition of a DAG landed that they may not see
            because += f"; every {interval / 1000:g} s from {spell_time(until)} on"
    if group["next_deadline"] is not None and now < group["next_deadline"] < at:
        if group["next_deadline"] == pool.database.read(inspecting.earliest_timeout, group["id"], dag_ids):
            at, because = group["next_deadline"], "a member's deadline comes: one poke before a timeout"
        elif dag_ids is None:  # to others it could be a deadline of a DAG that they may not see
            at, because = group["next_deadline"], "the step of a member's exponential_backoff grows then"
    if shown["last_poke_at"] is None and now - group["registered_at"] < group["poke_interval"]:
        at, because, shown["last_outcome"] = now, "it was not poked yet", None
    try:
        if shown["unreachable"] is not None:
            raise Unreachable(shown["unreachable"])
        backend = group["backend"] or group["op_classpath"]
        outage = next((each for each in Outages(pool.leases.store).away() if each.backend == backend), None)
        limit = Budgets(pool.settings.budgets).of(backend)
        budget = None if limit is None else BudgetsLeft(pool.leases.store).look([limit])[0]
    except Unreachable:
        outage, budget = None, None
    trouble = pool.database.read(troubles.of_group, group["id"])
    if trouble.is_isolated:
        because += f"; poked in a child process: {trouble}"
    if trouble.overruns > 1:
        because += f"; {trouble.overruns} pokes in a row overran SENSORPOOL_POKE_TIMEOUT"
    if trouble.failing_since is not None:
        because += f"; its pokes have failed since {spell_time(trouble.failing_since)}"
    if trouble.unpokeable_since is not None:
        because += f"; no process could poke it since {spell_time(trouble.unpokeable_since)}: {trouble.cause}"
    if outage is not None:
        because += f"; its {outage_said(outage)}, and before a deadline one poke at a time asks it"
    if budget is not None and budget.waiting:
        because += f"; {budget.waiting:,} groups wait for the budget of {budget.budget.pattern} ({budget.budget}), "
        because += f"for up to {budget.longest:.0f} s"
    shown["next_poke_at"], shown["next_poke_because"] = spell_time(at), because


def _sparse_until(pool: PoolView, group: Any, interval: Milliseconds, now: Milliseconds) -> Milliseconds | None:
    """Return until when the condition is poked more seldom (the setting ``adaptive``); None: it never is."""
    if not pool.settings.adaptive:
        return None
    family = family_of(group)
    usual = UsualLandings(pool.database).of([family], now)[family]
    first = earliest(usual, group["logical_date"], group["registered_at"])
    return None if first is None else first - FACTOR * interval
