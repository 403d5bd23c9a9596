"""Quarantine: conditions whose poke took its process down too often are refused until somebody lets them out."""

from collections.abc import Sequence
from typing import Any

from sensorpool.errors import Refused, Unreachable
from sensorpool.logs import logger
from sensorpool.look import digest_of, instance, spell_time
from sensorpool.pool import Pool
from sensorpool.rows import read_json
from sensorpool.store import barring

log = logger(__name__)


def quarantined(pool: Pool) -> list[dict[str, Any]]:
    """Return what is in quarantine, the newest first."""
    rows = pool.database.read(barring.quarantined)
    return [
        {
            "op_classpath": row["op_classpath"],
            "poke_context": read_json(row["poke_context"], row["poke_context"]),
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
    :raises Refused: when somebody changed its row by hand, so that nobody knows what it waited for; then neither.
    """
    if instance_ids is None:
        return pool.database.run(barring.let_out)
    rows = [instance(pool, instance_id) for instance_id in instance_ids]
    digests = [_digest_of(row) for row in rows]
    for row in rows:
        try:
            pool.leases.clear_suspects(pool.range_of(row["shardcode"]), [row["group_id"]])
        except Unreachable as error:
            log.warning("it is poked apart until it comes through", error=str(error))
    return pool.database.run(lambda connection: barring.let_out(connection, digests))


def _digest_of(row: Any) -> bytes:
    try:
        return digest_of(row)
    except Refused as error:
        raise Refused(f"instance {row['id']} was changed by hand ({error}): let everything out with --all") from None
