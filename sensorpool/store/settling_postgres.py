"""The end of instances on PostgreSQL: a flush in one statement, whatever the number of states and reasons."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model.values import Milliseconds, Verdict
from sensorpool.store.database import fetch, table_prefix

# The values of each instance are looked up by its id. After a mass settle, the planner would expect a single sensing
# row, and a join would compare each row with each other.
_WRITE = """
UPDATE {prefix}sensor_instance s
SET state = told.by_id -> s.id::text ->> 0, ending = told.by_id -> s.id::text ->> 1,
    reason = told.by_id -> s.id::text ->> 2, xcom_value = told.by_id -> s.id::text ->> 3, settled_at = %(now)s{shared}
FROM (SELECT %(told)s::jsonb AS by_id) AS told
WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.on_settled
"""
_SHARED = ", shared_value_id = (told.by_id -> s.id::text ->> 4)::bigint"


def write_verdicts(
    connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds, shared: Mapping[int, int]
) -> list[Any]:
    """Give each sensing instance its terminal state; return the columns of `settling._WRITTEN`.

    :param shared: the row ids of shared values, by group.
    """
    told: dict[int, tuple[Any, ...]]
    if shared:
        told = {
            v.instance_id: (
                *(v.state, v.ending, v.reason),
                *((None, shared[v.group_id]) if v.group_id in shared else (v.xcom_value, None)),
            )
            for v in verdicts
        }
    else:
        told = {each.instance_id: (each.state, each.ending, each.reason, each.xcom_value) for each in verdicts}
    ids = f"{{{','.join(map(str, told))}}}"
    statement = _write(table_prefix(connection), bool(shared))
    return fetch(connection, statement, {"now": now, "told": json.dumps(told), "ids": ids})


@cache
def _write(prefix: str, shared: bool) -> str:
    return _WRITE.format(prefix=prefix, shared=_SHARED if shared else "")
