"""The backends of a pool's conditions, as its workers know them: which are away, and what is left of their budgets."""

import time
from collections.abc import Mapping
from typing import Any

from sensorpool.client.pool_view import PoolView
from sensorpool.instrumentation.redaction import safe_line
from sensorpool.leases.budgets import BudgetsLeft, BudgetState
from sensorpool.leases.outages import Outages
from sensorpool.model.budgets import Budgets
from sensorpool.model.outage import Kind, Outage


def away(pool: PoolView) -> dict[str, Outage]:
    """Return the backends that are away, by name.

    :raises Unreachable: when Redis does not answer.
    """
    return {each.backend: each for each in Outages(pool.leases.store).away()}


def said(outage: Mapping[str, Any]) -> str:
    """Say of a backend that it is away, and since when.

    :param outage: as `shown` returns it.
    """
    what = "wants to be left alone" if outage["why"] == Kind.THROTTLED else "is away"
    return f"backend {outage['backend']} {what}, for {outage['for_s']:.0f} s now"


def shown(outage: Outage) -> dict[str, Any]:
    """Return an outage as plain values."""
    now = time.monotonic()
    return {
        "backend": safe_line(outage.backend, 80),
        "why": str(outage.kind),
        "for_s": round(now - outage.since, 3),
        "asked_in_s": round(max(0.0, outage.ask_at - now), 3),
        "cause": outage.cause,
    }


def budgets(pool: PoolView) -> list[dict[str, Any]]:
    """Return the budgets that this process knows by its settings, with what waits for each.

    :raises Unreachable: when Redis does not answer.
    """
    if not pool.settings.budgets:
        return []
    found = BudgetsLeft(pool.leases.store).look(pool.settings.budgets)
    return [
        {
            "backends": each.budget.pattern,
            "budget": str(each.budget),
            "waiting": each.waiting,
            "longest_s": round(each.longest, 1),
            "at_once": each.at_once,
        }
        for each in found
    ]


def budget_of(pool: PoolView, backend: str) -> BudgetState | None:
    """Return the budget of a backend, if it has one and groups wait for it.

    :raises Unreachable: when Redis does not answer.
    """
    if (budget := Budgets(pool.settings.budgets).of(backend)) is None:
        return None
    [found] = BudgetsLeft(pool.leases.store).look([budget])
    return found if found.waiting else None
