"""Callbacks that wait to be sent: which, since when, and why; and sent again at an operator's wish."""

from collections.abc import Sequence
from typing import Any

from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Unknown
from sensorpool.model.times import spell_time
from sensorpool.store import callbacks


def waiting(pool: PoolView, most: int) -> list[dict[str, Any]]:
    """Return the callbacks that wait, the longest waiting first.

    :param most: the most that are returned.
    :raises Unreachable: when the database does not answer.
    """
    return [
        {
            "instance_id": row["instance_id"] if row["instance_id"] > 0 else None,
            "group_id": -row["instance_id"] if row["instance_id"] < 0 else None,  # that is late
            "task": row["task"],
            "since": spell_time(row["created_at"]),
            "tries": row["tries"],
            "next_try": spell_time(row["next_try_at"]),
            "cause": row["cause"],
        }
        for row in pool.database.read(callbacks.waiting, most)
    ]


def hurry(pool: PoolView, instance_ids: Sequence[int] | None) -> int:
    """Have callbacks tried at the next round of rescue; return how many.

    :param instance_ids: of these instances; None: of all.
    :raises Unknown: when no callback of one of these instances waits; then none is hurried.
    :raises Unreachable: when the database does not answer.
    """
    if instance_ids is not None:
        _check_all_wait(pool, instance_ids)
    now = pool.database.read(pool.database.now)
    return pool.database.run(callbacks.hurry, instance_ids, now)


def _check_all_wait(pool: PoolView, instance_ids: Sequence[int]) -> None:
    possible = [each for each in instance_ids if 0 < each < 2**63]  # a database cannot look for another number
    found = pool.database.read(callbacks.waiting_of, possible)
    for each in instance_ids:
        if each not in found:
            shown = str(each) if abs(each) < 10**20 else "with so large a number"
            raise Unknown(f"no callback of instance {shown} waits: `sensorpool callbacks` lists those that do")
