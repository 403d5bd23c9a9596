"""Quarantine: conditions whose poke took its process down too often are refused until an operator releases them."""

from collections.abc import Sequence
from typing import Any

from sensorpool.client.pool_view import PoolView
from sensorpool.errors import Unknown
from sensorpool.instrumentation.redaction import printable
from sensorpool.model.json_text import read_json
from sensorpool.model.words import spell_time
from sensorpool.store import troubles

_ID_LENGTH = 12  # hexadecimal digits


def quarantined(pool: PoolView) -> list[dict[str, Any]]:
    """Return the conditions in quarantine, the newest first."""
    rows = pool.database.read(troubles.quarantined)
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


def release(pool: PoolView, ids: Sequence[str] | None) -> int:
    """Release conditions from quarantine, and forget their strikes; return how many were in quarantine.

    Instances that failed stay failed: register them again, or clear the tasks in Airflow.

    :param ids: as `quarantined` returns them; None: all conditions.
    :raises Unknown: when one of them is not in quarantine; then none is released.
    """
    if ids is None:
        return pool.database.run(troubles.let_out)
    inside = {id_of(row["digest"]): bytes(row["digest"]) for row in pool.database.read(troubles.quarantined)}
    for each in ids:
        if each not in inside:
            raise Unknown(f"{printable(each)[:40]} is not in quarantine: `sensorpool quarantine` lists what is")
    return pool.database.run(troubles.let_out, [inside[each] for each in ids])
