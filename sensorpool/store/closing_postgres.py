"""Instances end, on PostgreSQL: all of a flush in one statement, however many states and reasons there are."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from sensorpool.model import Milliseconds, Verdict
from sensorpool.store.database import fetch, table_prefix

_WRITE = """
UPDATE {prefix}sensor_instance s
SET state = v.state, ending = v.ending, reason = v.reason, xcom_value = v.xcom_value, settled_at = %(now)s
FROM unnest(%(id)b::int8[], %(state)b::text[], %(ending)b::text[], %(reason)b::text[], %(xcom_value)b::text[])
     AS v (id, state, ending, reason, xcom_value)
WHERE s.id = v.id AND s.state = 'sensing'
RETURNING s.id, s.dag_id, s.task_id, s.run_id, s.map_index, s.try_number, s.state, s.ending, s.reason, s.xcom_value,
          s.settled_at, s.on_settled
"""


def write_verdicts(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> list[Any]:
    """Give each sensing instance its terminal state; return the columns of `closing.settled`."""
    values = {
        "id": [verdict.instance_id for verdict in verdicts],
        "state": [str(verdict.state) for verdict in verdicts],
        "ending": [str(verdict.ending) for verdict in verdicts],
        "reason": [verdict.reason for verdict in verdicts],
        "xcom_value": [verdict.xcom_value for verdict in verdicts],
        "now": now,
    }
    return fetch(connection, _write(table_prefix(connection)), values)


@cache
def _write(prefix: str) -> str:
    return _WRITE.format(prefix=prefix)
