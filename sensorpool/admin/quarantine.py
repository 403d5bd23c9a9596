"""Quarantine: conditions whose poke took its process down too often are refused until somebody lets them out."""

from collections.abc import Sequence
from typing import Any

from sensorpool.admin.instances import digest_of, instance
from sensorpool.client.pool import Pool
from sensorpool.errors import Refused, Unknown, Unreachable
from sensorpool.instrumentation.logs import logger
from sensorpool.model.json_text import read_json
from sensorpool.model.times import spell_time
from sensorpool.store import admission

_ID_LENGTH = 12  # hexadecimal digits

log = logger(__name__)


def quarantined(pool: Pool) -> list[dict[str, Any]]:
    """Return what is in quarantine, the newest first."""
    rows = pool.database.read(admission.quarantined)
    return [
        {
            "id": id_of(row["digest"]),
            "op_classpath": row["op_classpath"],
            "poke_context": read_json(row["poke_context"], row["poke_context"]),
            "since": spell_time(row["since"]),
            "crashes": row["crashes"],
            "reason": row["reason"],
        }
        for row in rows
    ]


def id_of(digest: bytes) -> str:
    """Return what a condition in quarantine is called, whether an instance that waited for it is known still or not."""
    return f"q{bytes(digest).hex()[:_ID_LENGTH]}"


def release(pool: Pool, instance_ids: Sequence[int] | None, condition_ids: Sequence[str] = ()) -> int:
    """Let out what these instances waited for, or everything; what it crashed is forgotten. Return how many were in.

    :param condition_ids: conditions by their own ids, to be let out as well.

    Instances that failed stay failed: register them again, or clear the tasks in Airflow.

    :raises Unknown: when there is no such instance, or no such condition in quarantine; then nothing is let out.
    :raises Refused: when somebody changed its row by hand, so that nobody knows what it waited for; then neither.
    """
    if instance_ids is None:
        return pool.database.run(admission.let_out)
    rows = [instance(pool, instance_id) for instance_id in instance_ids]
    digests = [*(_digest_of(row) for row in rows), *_digests_inside(pool, condition_ids)]
    for row in rows:
        try:
            pool.workers()
            pool.leases.suspects.clear(pool.range_of(row["shardcode"]), [row["group_id"]])
        except Unreachable as error:
            log.warning("it is poked apart until it comes through", error=str(error))
    return pool.database.run(admission.let_out, digests)


def _digests_inside(pool: Pool, condition_ids: Sequence[str]) -> list[bytes]:
    if not condition_ids:
        return []
    inside = {id_of(row["digest"]): bytes(row["digest"]) for row in pool.database.read(admission.quarantined)}
    for each in condition_ids:
        if each not in inside:
            raise Unknown(f"{each} is not in quarantine: `sensorpool quarantine` lists what is")
    return [inside[each] for each in condition_ids]


def _digest_of(row: Any) -> bytes:
    try:
        return digest_of(row)
    except Refused as error:
        raise Refused(f"instance {row['id']} was changed by hand ({error}): let everything out with --all") from None
