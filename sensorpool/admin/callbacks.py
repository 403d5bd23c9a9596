"""Callbacks that wait to be sent: which, since when, and why; and sent again at an operator's wish."""

from typing import Any

from sensorpool.client.pool_view import PoolView
from sensorpool.model.words import spell_time
from sensorpool.store import callback_rows


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
        for row in pool.database.read(callback_rows.waiting, most)
    ]


def hurry(pool: PoolView) -> int:
    """Have all callbacks tried at the next round of rescue; return how many.

    :raises Unreachable: when the database does not answer.
    """
    return pool.database.run(callback_rows.hurry, pool.database.read(pool.database.now))
