"""The report of a survey as a JSON object: hours, counts, assumptions, and what is not known."""

from dataclasses import asdict
from typing import Any

from sensorpool.admin.savings.classes import taken_of
from sensorpool.admin.savings.ledger import Entries, summed, total
from sensorpool.admin.savings.survey import Assumptions, Found
from sensorpool.admin.savings.values import Costs, Mode, Taken

_HOUR = 3600


def report(found: Found, assumed: Assumptions) -> dict[str, Any]:
    """Return a survey in the form of ``sensorpool savings --json``."""
    takings = summed(found.entries, lambda owner: taken_of(owner[1]))
    made: dict[str, Any] = {
        "since": found.since.isoformat(timespec="seconds"),
        "until": found.until.isoformat(timespec="seconds"),
        "task_instances": found.task_instances,
        "assumptions": asdict(assumed),
        "total": costs_as_json(total(found.entries)),
        "by_taken": {str(each): costs_as_json(takings.get(each, Costs())) for each in Taken},
        "by_dag": _rows(found.entries, "dag_id"),
        "by_class": [row | {"taken": taken_of(row["class"])} for row in _rows(found.entries, "class")],
        "modes": {str(mode): found.modes[mode] for mode in Mode},
        "unknown": asdict(found.unknown),
        "missing_tables": list(found.missing),
        "pool_elsewhere": found.pool_elsewhere,
        "saved": None,
    }
    if found.saved is not None:
        made["saved"] = {
            "since": None if found.saved_since is None else found.saved_since.isoformat(timespec="seconds"),
            "total": costs_as_json(total(found.saved)),
            "by_dag": _rows(found.saved, "dag_id"),
            "by_class": _rows(found.saved, "class"),
        }
    return made


def costs_as_json(costs: Costs) -> dict[str, Any]:
    """Return costs with hours of slots, and whole pokes."""
    return {
        "tries": costs.tries,
        "slot_hours": round(costs.slot_seconds / _HOUR, 3),
        "pokes": round(costs.pokes),
        "duplicate_pokes": round(costs.duplicates),
        "starts": costs.starts,
        "with_pool": {
            "slot_hours": round(costs.pool_slot_seconds / _HOUR, 3),
            "pokes": round(costs.pool_pokes),
            "starts": costs.pool_starts,
        },
    }


def _rows(entries: Entries, name: str) -> list[dict[str, Any]]:
    place = 0 if name == "dag_id" else 1
    return [{name: each, **costs_as_json(costs)} for each, costs in summed(entries, lambda owner: owner[place]).items()]
