"""Quarantine: conditions whose poke took its process down too often are refused until somebody lets them out."""

import json
from collections.abc import Sequence
from typing import Any

from sensorpool.errors import Unknown, Unreachable
from sensorpool.identity import identify
from sensorpool.logs import logger
from sensorpool.look import spell_time
from sensorpool.pool import Pool
from sensorpool.store import barring, looking

log = logger(__name__)


def quarantined(pool: Pool) -> list[dict[str, Any]]:
    """Return what is in quarantine, the newest first."""
    rows = pool.database.read(barring.quarantined)
    return [
        {
            "op_classpath": row["op_classpath"],
            "poke_context": json.loads(row["poke_context"]),
            "since": spell_time(row["since"]),
            "crashes": row["crashes"],
            "reason": row["reason"],
        }
        for row in rows
    ]


def release(pool: Pool, instance_ids: Sequence[int] | None) -> int:
    """Let out what these instances waited for, or everything; what it crashed is forgotten. Return how many were in.

    Instances that failed stay failed: register them again, or clear the tasks in Airflow.

    :raises Unknown: when there is no such instance; then nothing is let out.
    """
    if instance_ids is None:
        return pool.database.run(barring.let_out)
    digests: list[bytes] = []
    for instance_id in instance_ids:
        row = pool.database.read(lambda c, instance_id=instance_id: looking.instance(c, instance_id))  # type: ignore[misc]
        if row is None:
            raise Unknown(f"there is no instance {instance_id}: it was never registered, or has been pruned")
        digests.append(identify(row["op_classpath"], json.loads(row["poke_context"])).digest)
        try:
            pool.leases.clear_suspects(pool.range_of(row["shardcode"]), [row["group_id"]])
        except Unreachable as error:
            log.warning("it is poked apart until it comes through", error=str(error))
    return pool.database.run(lambda connection: barring.let_out(connection, digests))
