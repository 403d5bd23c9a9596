"""The end of instances on PostgreSQL: a statement for each state and ending, whatever the number of reasons."""

import json
from collections.abc import Sequence
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
    xcom_value = %(values)s::jsonb ->> s.id::text, settled_at = %(now)s
WHERE s.id = ANY (%(ids)s::bigint[]) AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.on_settled
"""


def write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Any]:
    """Give each sensing instance its terminal state; return the columns of `settling._WRITTEN`."""
    alike: dict[tuple[State, Ending], list[Verdict]] = {}
    for each in verdicts:
        alike.setdefault((each.state, each.ending), []).append(each)
    rows: list[Any] = []
    for (state, ending), some in alike.items():
        values = {
            "state": state,
            "ending": ending,
            "now": now,
            "ids": f"{{{','.join([str(v.instance_id) for v in some])}}}",
            "reasons": _by_id({v.instance_id: v.reason for v in some if v.reason is not None}),
            "values": _by_id({v.instance_id: v.xcom_value for v in some if v.xcom_value is not None}),
        }
        rows += fetch(connection, _WRITE.format(prefix=table_prefix(connection)), values)
    return rows


def _by_id(texts: dict[int, str]) -> str | None:
    return json.dumps(texts) if texts else None
