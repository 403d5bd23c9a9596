"""Instances end, on PostgreSQL: all of a flush in one statement, however many states and reasons there are."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model import Milliseconds, Verdict
from sensorpool.store.database import fetch, table_prefix

# What each is told is looked up by its id. A join would do, but whenever thousands have just settled the planner takes
# the few that sense for one, and compares each with each.
_WRITE = """
UPDATE {prefix}sensor_instance s
SET state = told.by_id -> s.id::text ->> 0, ending = told.by_id -> s.id::text ->> 1,
    reason = told.by_id -> s.id::text ->> 2, xcom_value = told.by_id -> s.id::text ->> 3, settled_at = %(now)s
FROM (SELECT %(told)s::jsonb AS by_id) AS told
WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.state, s.ending, s.reason, s.xcom_value,
          s.settled_at, s.on_settled
"""


def write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Any]:
    """Give each sensing instance its terminal state; return the columns of `closing.settled`."""
    told = {each.instance_id: (each.state, each.ending, each.reason, each.xcom_value) for each in verdicts}
    ids = f"{{{','.join(map(str, told))}}}"
    return fetch(connection, _write(table_prefix(connection)), {"now": now, "told": json.dumps(told), "ids": ids})


@cache
def _write(prefix: str) -> str:
    return _WRITE.format(prefix=prefix)
