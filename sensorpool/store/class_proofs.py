"""What first pokes on Airflow's workers have proved: rows that a triggerer looks up before it registers a sensor."""

from sqlalchemy import Connection, delete, exists, insert, literal, select

from sensorpool.model.values import Milliseconds
from sensorpool.store.schema import class_proof as p

MOST = 1_000  # rows of a class that are read


def of_class(connection: Connection, op_classpath: str) -> dict[bytes, str]:
    """Return the poke_contexts that were proved of a class, the newest `MOST` of them, by their digests."""
    newest = select(p.c.digest, p.c.poke_context).where(p.c.op_classpath == op_classpath)
    rows = connection.execute(newest.order_by(p.c.proved_at.desc()).limit(MOST))
    return {bytes(row.digest): row.poke_context for row in rows}


def is_known(connection: Connection, digest: bytes) -> bool:
    """Whether there is a row of a digest."""
    return bool(connection.scalar(select(exists(select(literal(1)).where(p.c.digest == digest)))))


def add(connection: Connection, digest: bytes, op_classpath: str, poke_context: str, now: Milliseconds) -> None:
    """Add a row.

    :raises IntegrityError: when another worker has just added it.
    """
    row = {"digest": digest, "op_classpath": op_classpath, "poke_context": poke_context, "proved_at": now}
    connection.execute(insert(p).values(row))


def withdraw(connection: Connection, op_classpath: str) -> int:
    """Delete the rows of a class; return how many there were."""
    return connection.execute(delete(p).where(p.c.op_classpath == op_classpath)).rowcount


def prune(connection: Connection, before: Milliseconds, most: int) -> int:
    """Delete rows that were added before ``before``, ``most`` at a time; return how many were deleted."""
    old = list(connection.execute(select(p.c.digest).where(p.c.proved_at < before).limit(most)).scalars())
    return connection.execute(delete(p).where(p.c.digest.in_(old))).rowcount if old else 0
