"""Results: settled instances in the form in which they are published, read by their ids."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, select

from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Settled
from sensorpool.store import values
from sensorpool.store.dialects import among
from sensorpool.store.schema import sensor_instance as s

_SETTLED = select(
    s.c.id,
    s.c.dag_id,
    s.c.task_id,
    s.c.run_id,
    s.c.map_index,
    s.c.try_number,
    s.c.state,
    s.c.ending,
    s.c.reason,
    s.c.xcom_value,
    s.c.settled_at,
    s.c.on_settled,
    s.c.shared_value_id,
).where(among(s.c.id))


def read(connection: Connection, instance_ids: Collection[int]) -> list[Settled]:
    """Return settled instances, without rows whose state or ending is unknown (edited by hand).

    A value that is kept once for several instances is one object for all of them.
    """
    rows = connection.execute(_SETTLED, {"ids": list(instance_ids)}).all() if instance_ids else []
    settled: list[Settled] = []
    shared = values.read(connection, {row[12] for row in rows if row[12] is not None})
    for row in rows:
        with suppress(ValueError):
            settled.append(_settled(row, shared))
    return settled


def _settled(row: Any, shared: Mapping[int, str]) -> Settled:
    value = row[9] if row[12] is None else shared.get(row[12])
    state = State(row[6])
    ending = Ending.CANCELLED if state is State.SENSING else Ending(row[7])  # one that waits has none yet
    return Settled(row[0], Key(*row[1:6]), state, ending, row[8], value, row[10], row[11])
