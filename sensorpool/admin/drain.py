"""Drain: hand waiters back, so that each goes on by itself in its own system.

Only a waiter that registered with an ``external_id``, as Airflow's tasks do, can be handed back.
"""

import time
from collections.abc import Iterator

from sensorpool.client.pool import Pool
from sensorpool.store import inspecting

_WINDOW = 500  # groups in one statement
_REASON = "the pool is being drained"


def drain(pool: Pool, rate: float) -> Iterator[int]:
    """Hand back all waiters, at most ``rate`` a second; yield the number handed back, batch by batch.

    :raises Unreachable: when the database does not answer; earlier batches stay handed back.
    """
    database, place = pool.database, 0
    at_once = max(1, round(rate))
    before = database.read(database.now) + 1
    while True:
        rows, last = database.read(inspecting.external_waiters, place, _WINDOW, before)
        ids = [row.id for row in rows]
        for start in range(0, len(ids), at_once):
            some = ids[start : start + at_once]
            yield pool.settler.hand_back(dict.fromkeys(some, _REASON))
            if start + at_once < len(ids) or last is not None:
                time.sleep(len(some) / rate)
        if last is None:
            return
        place = last
