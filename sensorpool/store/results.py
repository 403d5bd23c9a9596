"""Results: settled instances in the form in which they are published, read by their ids."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, func, select

from sensorpool.model.states import Ending, State
from sensorpool.model.values import Key, Settled
from sensorpool.store.dialects import among
from sensorpool.store.schema import sensor_instance as s

AT_ONCE = 16 * 2**20  # bytes of XCom values that are read in one statement
_FEW = 50  # so few instances need no weighing: a value has 256 KB at most

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
).where(among(s.c.id))
_WEIGHTS = select(s.c.id, func.coalesce(func.length(s.c.xcom_value), 0)).where(among(s.c.id))


def read(connection: Connection, instance_ids: Collection[int]) -> list[Settled]:
    """Return settled instances, without rows whose state or ending is unknown (edited by hand)."""
    rows = connection.execute(_SETTLED, {"ids": list(instance_ids)}).all() if instance_ids else []
    settled: list[Settled] = []
    for row in rows:
        with suppress(ValueError):
            settled.append(_settled(row))
    return settled


def _settled(row: Any) -> Settled:
    state = State(row[6])
    ending = Ending.CANCELLED if state is State.SENSING else Ending(row[7])  # one that waits has none yet
    return Settled(row[0], Key(*row[1:6]), state, ending, *row[8:])


def in_readable_parts(connection: Connection, instance_ids: Sequence[int]) -> list[list[int]]:
    """Return the instances in parts, so that memory has room for the XCom values of each part."""
    ids = list(instance_ids)
    if len(ids) <= _FEW:
        return [ids] if ids else []
    weights = {row[0]: row[1] for row in connection.execute(_WEIGHTS, {"ids": ids})}
    return list(_parts(ids, weights))


def _parts(ids: Sequence[int], weights: dict[int, int]) -> Iterator[list[int]]:
    part, weight = list[int](), 0
    for instance_id in ids:
        own = weights.get(instance_id, 0)
        if weight + own > AT_ONCE and part:
            yield part
            part, weight = [], 0
        part.append(instance_id)
        weight += own
    yield part
