"""Quarantine: conditions whose poke took its process down too often are refused until an operator releases them."""

from collections.abc import Sequence
from typing import Any

from sensorpool.admin.instances import digest_of, instance
from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Refused, Unknown
from sensorpool.model.json_text import read_json
from sensorpool.model.times import spell_time
from sensorpool.store import admission

_ID_LENGTH = 12  # hexadecimal digits


def quarantined(pool: PoolView) -> list[dict[str, Any]]:
    """Return the conditions in quarantine, the newest first."""
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
    """Return the id of a condition in quarantine, which does not depend on an instance that waited for it."""
    return f"q{bytes(digest).hex()[:_ID_LENGTH]}"


def release(pool: PoolView, instance_ids: Sequence[int] | None, condition_ids: Sequence[str] = ()) -> int:
    """Release conditions from quarantine, and forget their crashes; return how many were in quarantine.

    Instances that failed stay failed: register them again, or clear the tasks in Airflow.

    :param instance_ids: the instances whose conditions are released; None: all conditions.
    :param condition_ids: further conditions, by their own ids.
    :raises Unknown: when there is no such instance, or no such condition in quarantine; then none is released.
    :raises Refused: when the row of an instance was edited by hand, so that its condition is not known; likewise.
    """
    if instance_ids is None:
        return pool.database.run(admission.let_out)
    rows = [instance(pool, instance_id) for instance_id in instance_ids]
    digests = [*(_digest_of(row) for row in rows), *_digests_inside(pool, condition_ids)]
    return pool.database.run(admission.let_out, digests)


def _digests_inside(pool: PoolView, condition_ids: Sequence[str]) -> list[bytes]:
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
