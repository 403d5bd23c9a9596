"""The end of instances on PostgreSQL: a statement for each state and ending, whatever the number of reasons."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model.states import Ending, State
from sensorpool.model.values import Milliseconds, Verdict
from sensorpool.store.database import fetch, table_prefix

# The texts of each instance are looked up by its id. After a mass settle, the planner would expect a single sensing
# row, and a join would compare each row with each other.
_WRITE = """
UPDATE {prefix}sensor_instance s
SET state = %(state)s, ending = %(ending)s, reason = %(reasons)s::jsonb ->> s.id::text,
    xcom_value = %(values)s::jsonb ->> s.id::text, settled_at = %(now)s{shared}
WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.on_settled
"""
_SHARED = ", shared_value_id = (%(shared)s::jsonb ->> s.id::text)::bigint"


def write_verdicts(
    connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds, shared: Mapping[int, int]
) -> list[Any]:
    """Give each sensing instance its terminal state; return the columns of `settling._WRITTEN`.

    :param shared: the row ids of shared values, by group.
    """
    alike: dict[tuple[State, Ending], list[Verdict]] = {}
    for each in verdicts:
        alike.setdefault((each.state, each.ending), []).append(each)
    rows: list[Any] = []
    for (state, ending), some in alike.items():
        told = {
            "state": state,
            "ending": ending,
            "now": now,
            "ids": f"{{{','.join([str(v.instance_id) for v in some])}}}",
            "reasons": _by_id({v.instance_id: v.reason for v in some if v.reason is not None}),
            "values": _by_id(
                {v.instance_id: v.xcom_value for v in some if v.xcom_value is not None and v.group_id not in shared}
            ),
        }
        if shared:
            told["shared"] = _by_id({v.instance_id: shared[v.group_id] for v in some if v.group_id in shared})
        rows += fetch(connection, _write(table_prefix(connection), bool(shared)), told)
    return rows


def _by_id(values: dict[int, Any]) -> str | None:
    return json.dumps(values) if values else None


@cache
def _write(prefix: str, shared: bool) -> str:
    return _WRITE.format(prefix=prefix, shared=_SHARED if shared else "")
