"""Deletion of rows that are no longer needed. Columns that change have no index, so these functions walk by id."""

from collections.abc import Sequence

from sqlalchemy import Connection, Delete, delete, exists, select, update

from sensorpool.model.json_text import read_json
from sensorpool.model.location import JOINS
from sensorpool.model.states import State
from sensorpool.model.values import Key, Milliseconds
from sensorpool.store import settling
from sensorpool.store.dialects import among
from sensorpool.store.schema import callback as c
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import sensor_instance as s


def look_at_instances(
    connection: Connection, after_id: int, size: int, before: Milliseconds
) -> tuple[list[int], int | None]:
    """Look at the next instances by id; return those that settled before a time.

    :returns: also the last id that was looked at; None: the end of the table.
    """
    query = select(s.c.id, s.c.state, s.c.settled_at).where(s.c.id > after_id).order_by(s.c.id).limit(size)
    rows = connection.execute(query).all()
    old = [each.id for each in rows if each.state != State.SENSING and (each.settled_at or before) < before]
    return old, rows[-1].id if len(rows) == size else None


def beyond(connection: Connection, limit: int, most: int) -> list[int]:
    """Return groups whose shardcode lies in no range: the limit was lowered, or a client has another limit."""
    return list(connection.execute(select(g.c.id).where(g.c.shardcode >= limit).limit(most)).scalars())


def fold(connection: Connection, group_ids: Sequence[int], limit: int) -> int:
    """Give the groups of `beyond` shardcodes below the limit; return how many groups changed."""
    locked = settling.lock_groups(connection, group_ids)
    codes = update(g).where(among(g.c.id), g.c.shardcode >= limit).values(shardcode=g.c.shardcode % limit)
    return connection.execute(codes, {"ids": list(locked)}).rowcount if locked else 0


def joined(connection: Connection) -> set[int]:
    """Return the ids of the instances for which joins wait: they stay, for a join asks how they ended."""
    contexts = connection.execute(select(g.c.poke_context).where(g.c.location == JOINS)).scalars()
    found: set[int] = set()
    for text in contexts:
        context = read_json(text)
        ids = context.get("instances") if isinstance(context, dict) else None
        if isinstance(ids, list):
            found.update(each for each in ids if type(each) is int)
    return found


def prune(connection: Connection, instance_ids: Sequence[int]) -> int:
    """Delete terminal instances for which no callback and no join waits; return how many were deleted."""
    kept = joined(connection)
    old = [instance_id for instance_id in instance_ids if instance_id not in kept]
    waits = exists().where(c.c.instance_id == s.c.id)
    return connection.execute(delete(s).where(s.c.id.in_(old), s.c.state != State.SENSING, ~waits)).rowcount


def forget_earlier_lives(connection: Connection, key: Key, external_id: str) -> int:
    """Delete the instances of a task's earlier life that have ended, from this try on; return how many there were.

    Airflow's ids of tries are UUIDs of version 7, in the order of time. So a try that is as high as a younger one's, or
    higher, and has an older id, is of a run that was deleted and made again under its name.

    :param external_id: the id of the try.
    """
    earlier = (s.c.try_number >= key.try_number, s.c.external_id < external_id)
    return connection.execute(_delete_ended(key).where(*earlier)).rowcount


def forget(connection: Connection, key: Key) -> int:
    """Delete the instance of a try that has ended; return 0 where there is none, and where it still waits."""
    return connection.execute(_delete_ended(key).where(s.c.try_number == key.try_number)).rowcount


def _delete_ended(key: Key) -> Delete:
    """Return the deletion of a task's instances that have ended, whatever their try."""
    run = (s.c.dag_id == key.dag_id, s.c.run_id == key.run_id)
    return delete(s).where(*run, s.c.task_id == key.task_id, s.c.map_index == key.map_index, s.c.state != State.SENSING)
