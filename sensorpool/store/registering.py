"""Groups and instances come."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sensorpool.schema import poke_group as g
from sensorpool.schema import sensor_instance as s
from sensorpool.store.database import lower

Row = dict[str, Any]


def instances_of_tasks(connection: Connection, tasks: Sequence[tuple[str, str, str, int]]) -> list[Any]:
    """Return every try of these task instances: id, key, group, identity and state of each."""
    task = tuple_(s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index)
    return list(
        connection.execute(
            select(
                s.c.id,
                s.c.dag_id,
                s.c.task_id,
                s.c.run_id,
                s.c.map_index,
                s.c.try_number,
                s.c.op_classpath,
                s.c.poke_context,
                s.c.group_id,
                s.c.hashcode,
                s.c.shardcode,
                s.c.state,
            ).where(task.in_(bindparam("tasks", expanding=True))),
            {"tasks": list(tasks)},
        )
    )


def join_groups(connection: Connection, groups: Sequence[Row]) -> None:
    """Make the groups, or take the next version of those that are there; either way their rows are locked.

    :param groups: a row each, in hashcode order (the order that every writer locks in).
    """
    dialect = connection.dialect.name
    if dialect in {"mysql", "mariadb"}:
        into = mysql.insert(g)
        new = into.inserted
        connection.execute(into.on_duplicate_key_update(_joined(new)), groups)
        return
    insert_into = sqlite.insert if dialect == "sqlite" else postgresql.insert
    statement = insert_into(g)
    connection.execute(
        statement.on_conflict_do_update(index_elements=[g.c.digest], set_=_joined(statement.excluded)), groups
    )


def _joined(new: Any) -> dict[str, Any]:
    """What a group takes from those who join it: the shortest step and the earliest deadline of all."""
    return {
        "version": g.c.version + new.version,
        "members": g.c.members + new.members,
        "poke_interval": lower(g.c.poke_interval, new.poke_interval),
        "next_deadline": lower(g.c.next_deadline, new.next_deadline),
    }


def groups_by_digest(connection: Connection, digests: Sequence[bytes]) -> list[Any]:
    """Return id, digest, version and the whole identity of groups: no two contexts share one, whatever their hash."""
    return list(
        connection.execute(
            select(g.c.id, g.c.digest, g.c.version, g.c.op_classpath, g.c.poke_context).where(g.c.digest.in_(digests))
        )
    )


def add_instances(connection: Connection, instances: Sequence[Row]) -> None:
    """Insert sensing instances, a thousand a statement."""
    connection.execute(insert(s), instances)
