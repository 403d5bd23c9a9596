"""XCom values: in the row of their instance, or kept once where copies for all waiters would be too much.

The values of one statement are weighed, both for writes and for reads, because the statement and memory are limited.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlalchemy import Connection, delete, exists, func, insert, select

from sensorpool.model.values import Milliseconds, Verdict
from sensorpool.store.dialects import among
from sensorpool.store.schema import sensor_instance as s
from sensorpool.store.schema import shared_value as v

SHARED_FROM = 4 * 2**20  # bytes of all copies; below it each instance has a copy
STATEMENT = 4 * 2**20  # bytes of verdicts in one statement
READ = 16 * 2**20  # bytes of values read in one statement
_FEW = 50  # so few instances need no weighing: a value has 256 KB at most
_ROW = 64  # bytes of a verdict without its texts


def share(connection: Connection, verdicts: Sequence[Verdict], now: Milliseconds) -> dict[int, int]:
    """Store once each value whose copies would be too large; return its row id by group. Mostly there are none."""
    if sum([len(each.xcom_value) for each in verdicts if each.xcom_value is not None]) < SHARED_FROM:
        return {}
    weights: dict[int, int] = {}
    texts: dict[int, str] = {}
    for each in verdicts:
        if each.xcom_value is not None:
            weights[each.group_id] = weights.get(each.group_id, 0) + len(each.xcom_value)
            texts[each.group_id] = each.xcom_value  # a flush has one fact of a group, and so one value
    shared: dict[int, int] = {}
    for group_id, weight in weights.items():
        if weight >= SHARED_FROM:
            row = {"group_id": group_id, "created_at": now, "value": texts[group_id]}
            key = connection.execute(insert(v).values(row)).inserted_primary_key
            assert key is not None
            shared[group_id] = int(key[0])
    return shared


def in_batches(verdicts: Sequence[Verdict], shared: Mapping[int, int]) -> Iterator[Sequence[Verdict]]:
    """Yield verdicts in batches of at most `STATEMENT` bytes, or of a single verdict."""
    start = weight = 0
    for place, each in enumerate(verdicts):
        own = _ROW + len(each.reason or "")
        if each.xcom_value is not None and each.group_id not in shared:
            own += len(each.xcom_value)
        if weight + own > STATEMENT and place > start:
            yield verdicts[start:place]
            start, weight = place, 0
        weight += own
    if start < len(verdicts):
        yield verdicts[start:] if start else verdicts


def read(connection: Connection, value_ids: Collection[int]) -> dict[int, str]:
    """Return shared values by their ids."""
    if not value_ids:
        return {}
    return {row[0]: row[1] for row in connection.execute(select(v.c.id, v.c.value).where(v.c.id.in_(value_ids)))}


def in_readable_parts(connection: Connection, instance_ids: Sequence[int]) -> list[list[int]]:
    """Return the instances in parts, so that the values of one part fit into one read."""
    ids = list(instance_ids)
    if len(ids) <= _FEW:
        return [ids] if ids else []
    query = select(s.c.id, func.coalesce(func.length(s.c.xcom_value), 0)).where(among(s.c.id))
    weights = {row[0]: row[1] for row in connection.execute(query, {"ids": ids})}
    parts: list[list[int]] = [[]]
    weight = 0
    for instance_id in ids:
        weight += weights.get(instance_id, 0)
        if weight > READ and parts[-1]:
            parts.append([])
            weight = weights.get(instance_id, 0)
        parts[-1].append(instance_id)
    return parts


def prune(connection: Connection, before: Milliseconds, most: int) -> int:
    """Delete shared values that no instance has any more; return how many were deleted."""
    used = exists().where(s.c.group_id == v.c.group_id, s.c.shared_value_id == v.c.id)
    ids = list(connection.execute(select(v.c.id).where(v.c.created_at < before, ~used).limit(most)).scalars())
    return connection.execute(delete(v).where(v.c.id.in_(ids))).rowcount if ids else 0
