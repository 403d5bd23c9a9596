"""The insertion of groups and instances: in one statement on PostgreSQL, in a few on other databases."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_
from sqlalchemy.dialects import mysql, sqlite

from sensorpool.model.states import State
from sensorpool.model.values import Key, Milliseconds, Registered
from sensorpool.store import registering_postgres, troubles
from sensorpool.store.dialects import lower
from sensorpool.store.rows import KnownTry, NewGroup, NewInstance, is_later_try
from sensorpool.store.schema import poke_group as g
from sensorpool.store.schema import schema_info
from sensorpool.store.schema import sensor_instance as s

_KEY = (s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index)
_ROWS = select(*(s.c[name] for name in KnownTry._fields))
_TRIES = _ROWS.where(tuple_(*_KEY).in_(bindparam("tasks", expanding=True)))


def known(connection: Connection, keys: Collection[Key]) -> dict[Key, KnownTry]:
    """Return the instances that are registered under these keys."""
    return {row.key: row for row in _tries(connection, keys) if row.key in keys}


def has_tries(connection: Connection, keys: Collection[Key]) -> bool:
    """Whether any try of one of these task instances is registered."""
    return bool(_tries(connection, keys))


def other_tries(connection: Connection, keys: Collection[Key]) -> list[KnownTry]:
    """Return the other tries of these task instances."""
    own = set(keys)
    return [row for row in _tries(connection, keys, own=False) if row.key not in own]


def _tries(connection: Connection, keys: Collection[Key], *, own: bool = True) -> list[KnownTry]:
    """Return every try of these task instances.

    :param own: whether the tries of the keys themselves are wanted, too.
    """
    if not keys:
        return []
    if connection.dialect.name == "postgresql":
        return list(map(KnownTry._make, registering_postgres.tries(connection, keys, own=own)))
    return [KnownTry._make(row) for row in connection.execute(_TRIES, {"tasks": [key.task for key in keys]})]


def is_there(connection: Connection, instance_id: int, key: Key) -> bool:
    """Whether an instance exists under this key."""
    row = connection.execute(_ROWS.where(s.c.id == instance_id)).first()
    return row is not None and KnownTry._make(row).key == key


def join(
    connection: Connection,
    groups: Mapping[bytes, NewGroup],
    instances: Mapping[Key, NewInstance],
    chosen: Sequence[Key],
    now: Milliseconds | None,
) -> list[Registered]:
    """Make the groups, or take the next version of existing ones, and insert the instances.

    In both cases the rows of the groups are locked: within a group, the order of versions is the order of commits.

    :param groups: by digest, in hashcode order (the order in which every writer locks).
    :param instances: by key.
    :param chosen: the keys of instances that may have other tries. Two tries of one task are registered one after the
        other, so that `other_tries`, which is called next, sees the earlier one.
    :param now: replaces the database's clock.
    :returns: the new instances, without those of conditions in quarantine and of a digest that belongs to another
        context: two contexts never share a group, whatever their hash.
    """
    by_dialect = registering_postgres.join if connection.dialect.name == "postgresql" else _join
    rows = by_dialect(connection, list(groups.values()), list(instances.values()), chosen, now)
    return [_made(row, groups, instances) for row in rows]


def _made(row: Any, groups: Mapping[bytes, NewGroup], instances: Mapping[Key, NewInstance]) -> Registered:
    """Return the instance of a row of `_ADDED`; its group is new if no version is older than the batch."""
    instance_id, group_id, version = row[5:]
    key = Key._make(row[:5])
    group = groups[instances[key].joined_digest]
    opened = version == group.members
    return Registered(instance_id, group_id, group.hashcode, group.shardcode, State.SENSING, True, key, opened)


def _join(
    connection: Connection,
    groups: Sequence[NewGroup],
    instances: Sequence[NewInstance],
    chosen: Sequence[Key],
    now: Milliseconds | None,
) -> Sequence[Any]:
    assert now is not None
    if connection.dialect.name != "sqlite":  # SQLite's transactions come one after the other anyway
        _lock_tries(connection, chosen)
    if troubles.quarantined(connection, [group.digest for group in groups]):
        return []
    identities = {group.digest: (group.op_classpath, group.poke_context) for group in groups}
    joined = {bytes(row.digest): row for row in _join_groups(connection, [_group_row(group, now) for group in groups])}
    rows = [
        _instance_row(each, row, now)
        for each in instances
        if ((row := joined[each.joined_digest]).op_classpath, row.poke_context) == identities[each.joined_digest]
    ]
    return _add_instances(connection, rows) if rows else []


def _lock_tries(connection: Connection, chosen: Sequence[Key]) -> None:
    """Lock out other tries of these tasks until the end of the transaction; first tries share the lock.

    In MySQL only locks of rows end with a transaction. So it locks the single row that always exists.
    """
    if chosen:
        only_first = not any(is_later_try(key) for key in chosen)
        connection.execute(select(schema_info.c.id).with_for_update(read=only_first))


_GROUP = (g.c.id, g.c.digest, g.c.version, g.c.hashcode, g.c.shardcode, g.c.op_classpath, g.c.poke_context)


def _join_groups(connection: Connection, groups: Sequence[dict[str, Any]]) -> list[Any]:
    if connection.dialect.name == "sqlite":
        return list(connection.execute(_upsert_sqlite(), groups))
    into = mysql.insert(g)
    connection.execute(into.on_duplicate_key_update(_joined(into.inserted)), groups)
    return list(connection.execute(select(*_GROUP).where(g.c.digest.in_([row["digest"] for row in groups]))))


@cache
def _upsert_sqlite() -> Any:
    into = sqlite.insert(g)
    return into.on_conflict_do_update(index_elements=[g.c.digest], set_=_joined(into.excluded)).returning(*_GROUP)


def _joined(new: Any) -> dict[str, Any]:
    """Return the new columns of a group that instances join: the shortest step and the earliest deadline of all."""
    return {
        "version": g.c.version + new.version,
        "members": g.c.members + new.members,
        "poke_interval": lower(g.c.poke_interval, new.poke_interval),
        "next_deadline": lower(g.c.next_deadline, new.next_deadline),
    }


def _group_row(group: NewGroup, now: Milliseconds) -> dict[str, Any]:
    times = {"version": group.members, "registered_at": now, "next_deadline": now + group.next_deadline}
    return group._asdict() | times


def _instance_row(each: NewInstance, group: Any, now: Milliseconds) -> dict[str, Any]:
    row = each._asdict()
    del row["joined_digest"]
    return row | {
        "op_classpath": group.op_classpath,
        "poke_context": group.poke_context,
        "group_id": group.id,
        "joined_version": group.version,
        "hashcode": group.hashcode,
        "shardcode": group.shardcode,
        "state": State.SENSING,
        "poke_interval": row.pop("step"),
        "start_date": now,
        "timeout_at": now + row.pop("timeout"),
        "next_deadline": now + row.pop("deadline"),
    }


_ADDED = (*_KEY, s.c.try_number, s.c.id, s.c.group_id, s.c.joined_version)
_INSERT = insert(s).returning(*_ADDED)


def _add_instances(connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[Any]:
    """Insert the rows; return the columns of `_ADDED`."""
    if connection.dialect.insert_executemany_returning:
        return connection.execute(_INSERT, rows).all()
    connection.execute(insert(s), rows)
    keys = [tuple(row[c.name] for c in (*_KEY, s.c.try_number)) for row in rows]
    return connection.execute(select(*_ADDED).where(tuple_(*_KEY, s.c.try_number).in_(keys))).all()
