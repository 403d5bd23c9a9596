"""The conditions that are waited for: a page of a list, and one of them in detail. Plain values that print as JSON."""

from collections import Counter, defaultdict
from collections.abc import Container
from dataclasses import replace
from typing import Any

from sensorpool.admin import instances
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Unknown, Unreachable
from sensorpool.instrumentation.redaction import printable
from sensorpool.leases.poke_log import latest_pokes
from sensorpool.model.json_text import read_json
from sensorpool.model.states import INCONCLUSIVE, Outcome, State
from sensorpool.model.usual_landing import family_of
from sensorpool.model.words import spell_time
from sensorpool.store import conditions, inspecting
from sensorpool.store.conditions import Order, Wanted

Seen = Container[str] | None
"""The DAGs whose waiters a reader may see, or change; None: all. What holds for a DAG may be found out when asked."""

SHOWN_WAITERS = 50
SHOWN_LANDINGS = 30
_MOST_FAILING = 5_000  # groups whose class is looked up
_FAILING = frozenset(Outcome) - INCONCLUSIVE - {Outcome.LANDED, Outcome.SKIP} | {Outcome.INFRA_FAILURE, Outcome.CRASHED}


def list_conditions(
    pool: PoolView, wanted: Wanted, order: Order, first: int, most: int, *, outcome: Outcome | None, seen: Seen
) -> dict[str, Any]:
    """Return a page of conditions, and how many there are on all pages.

    :param outcome: only those whose last poke saw this, as far as Redis remembers the pokes.
    :param seen: the DAGs whose waiters may be named; None: all. Only conditions that they wait for are listed.
    :returns: ``count``, ``conditions``, and ``trouble``: why the last outcomes are not known, or None.
    :raises Unreachable: when the database does not answer.
    """
    if not _can_be(wanted):
        return {"count": 0, "conditions": [], "trouble": None}
    named = waiting(pool, seen)
    if wanted.dag_ids is None:
        wanted = replace(wanted, dag_ids=named)
    outcomes, trouble, database = dict[int, Outcome](), None, pool.database
    try:
        outcomes = _last_outcomes(pool)
    except Unreachable as error:
        trouble = str(error)
    if outcome is None:
        rows = database.read(conditions.conditions, wanted, order, first, most)
        count = database.read(conditions.count, wanted)
    else:
        found = [each for each in database.read(conditions.ids, wanted, order) if outcomes.get(each) == outcome]
        rows, count = database.read(conditions.of_ids, found[first : first + most]), len(found)
    who = database.read(conditions.first_waiters, [row["id"] for row in rows], named)
    return {
        "count": count,
        "conditions": [
            _shown(row) | _last(row, outcomes) | _who(who.get(row["id"]), is_cut=seen is not None) for row in rows
        ],
        "trouble": trouble,
    }


def condition(pool: PoolView, group_id: int, seen: Seen, after: int = 0, *, all_dates: bool = False) -> dict[str, Any]:
    """Return one condition: its last pokes, its next one, its waiters, and earlier landings of its family.

    A reader of some DAGs gets no dates of the others: no earlier landings, and neither since when nor until when
    others wait.

    :param seen: the DAGs whose waiters may be named; None: all.
    :param after: the last waiter of the page before.
    :param all_dates: a reader who is asked for DAG by DAG, and may see what concerns all of them.
    :raises Unknown: when no instance waits for it.
    :raises Unreachable: when the database does not answer.
    """
    database = pool.database
    row = _group(pool, group_id)
    if row is None:
        raise _unknown(group_id)
    shown = _shown(row) | {"state": State.SENSING, "group_id": group_id, "shardcode": row["shardcode"]}
    shown |= {**dict.fromkeys(instances.OF_POKES), "unreachable": None, "last_pokes": []}
    named = None if seen is None else _dags_of(pool, group_id, seen)
    has_dates = seen is None or all_dates
    instances.add_last(pool, shown)
    instances.add_next(pool, shown, row, database.read(database.now), None if has_dates else named)
    waiters = database.read(conditions.waiters, group_id, named, after, SHOWN_WAITERS)
    shown["waiters"] = [_spelt(each, "start_date", "timeout_at") for each in waiters]
    # the group's own is also when the step of a backoff grows
    shown["next_deadline"] = spell_time(database.read(inspecting.earliest_timeout, group_id, None))
    landings = database.read(conditions.landings, family_of(row), SHOWN_LANDINGS) if has_dates else ()
    shown["landings"] = [_spelt(each, "logical_date", "waiting_since", "ended_at") for each in landings]
    if not has_dates:  # the other dates are of runs that may not be seen
        shown |= {"registered_at": None, "next_deadline": None, "logical_date": None}
    return shown


def _spelt(row: Any, *times: str) -> dict[str, Any]:
    """Return a row with these times spelt."""
    return {**row, **{name: spell_time(row[name]) for name in times}}


def is_waited_for(pool: PoolView, group_id: int, dag_ids: Seen) -> bool:
    """Whether a task of one of these DAGs waits for a condition; None: of any DAG."""
    return bool(_dags_of(pool, group_id, dag_ids))


def check_seen(pool: PoolView, group_id: int, seen: Seen) -> None:
    """Check that a condition has a waiter who may be named.

    :raises Unknown: when there is none: that it is there for others must not be told.
    """
    if not (is_waited_for(pool, group_id, seen) if seen is not None else _group(pool, group_id) is not None):
        raise _unknown(group_id)


def others_seen(pool: PoolView, shown: dict[str, Any], seen: Seen) -> list[dict[str, Any]]:
    """Return who may be named of those who wait with an instance that `instances.show` has returned."""
    if shown["state"] != State.SENSING:
        return []
    group_id = shown["group_id"]
    rows = pool.database.read(conditions.waiters, group_id, _dags_of(pool, group_id, seen), 0, SHOWN_WAITERS)
    return [dict(row) for row in rows if row["id"] != shown["id"]]


def waiting(pool: PoolView, dag_ids: Seen) -> set[str] | None:
    """Return those of many DAGs that wait: a statement takes so many values, and an Airflow may have more DAGs."""
    if dag_ids is None:
        return None
    return {dag_id for dag_id in pool.database.read(conditions.waiting_dags) if dag_id in dag_ids}


def _dags_of(pool: PoolView, group_id: int, seen: Seen) -> set[str]:
    """Return those DAGs, of all that wait for a condition, that a reader may see: no others are asked for."""
    dags = pool.database.read(conditions.dags_of, group_id) if 0 < group_id < 2**63 else set()
    return {dag_id for dag_id in dags if seen is None or dag_id in seen}


def _group(pool: PoolView, group_id: int) -> Any:
    """Return the row of a group, or None."""
    return pool.database.read(inspecting.group, group_id) if 0 < group_id < 2**63 else None


def _unknown(group_id: int) -> Unknown:
    return Unknown(f"there is no condition {group_id} that an instance waits for: it has landed, or was never there")


def failing(pool: PoolView) -> dict[str, Counter[str]]:
    """Return how many conditions of each class failed at their last poke, by what those pokes saw.

    :raises Unreachable: when the database or Redis does not answer.
    """
    by_outcome: defaultdict[Outcome, list[int]] = defaultdict(list)
    for group_id, outcome in _last_outcomes(pool).items():
        if outcome in _FAILING:
            by_outcome[outcome].append(group_id)
    found: dict[str, Counter[str]] = {}
    for outcome, group_ids in by_outcome.items():
        for op_classpath, count in pool.database.read(conditions.classes_of, group_ids[:_MOST_FAILING]).items():
            found.setdefault(op_classpath, Counter())[outcome] += count
    return found


def _can_be(wanted: Wanted) -> bool:
    """Whether the texts can be registered; some databases cannot look for others."""
    texts = (wanted.op_classpath, wanted.backend, *(wanted.dag_ids or ()))
    return all(printable(text) == text for text in texts if text)


def _last_outcomes(pool: PoolView) -> dict[int, Outcome]:
    pool.workers()
    found: dict[int, Outcome] = {}
    for shard_range in pool.ranges:
        latest = latest_pokes(pool.leases.poke_log.records(shard_range))
        found |= {group_id: poked.outcome for group_id, poked in latest.items()}
    return found


def _shown(row: Any) -> dict[str, Any]:
    return {
        "id": row["id"],
        "op_classpath": row["op_classpath"],
        "poke_context": read_json(row["poke_context"], row["poke_context"]),
        "backend": row["backend"],
        "members": row["members"],
        "poke_interval": row["poke_interval"] / 1000,
        "registered_at": spell_time(row["registered_at"]),
        "next_deadline": spell_time(row["next_deadline"]),
        "logical_date": spell_time(row["logical_date"]),
        "late_since": spell_time(row["late_since"]),
    }


def _last(row: Any, outcomes: dict[int, Outcome]) -> dict[str, Any]:
    outcome = outcomes.get(row["id"])
    return {"last_outcome": None if outcome is None else str(outcome)}


def _who(waiter: Any | None, *, is_cut: bool) -> dict[str, Any]:
    """Return who waits; for a reader of some DAGs also since when, in the place of when the first of all began."""
    if waiter is None:
        return {"waiter": None}
    who = {name: waiter[name] for name in waiter if name != "start_date"}
    return {"waiter": who} | ({"registered_at": spell_time(waiter["start_date"])} if is_cut else {})
