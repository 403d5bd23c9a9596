"""Groups and instances come."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Integer, Table, Text, and_, bindparam, column, func, insert, select, tuple_
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY

from sensorpool.schema import poke_group as g
from sensorpool.schema import sensor_instance as s
from sensorpool.store.database import lower

Row = dict[str, Any]


_KEY = (s.c.dag_id, s.c.task_id, s.c.run_id, s.c.map_index)
_TRY = (
    s.c.id,
    *_KEY,
    s.c.try_number,
    s.c.op_classpath,
    s.c.poke_context,
    s.c.group_id,
    s.c.hashcode,
    s.c.shardcode,
    s.c.state,
)


def _tries_by_arrays() -> Any:
    """PostgreSQL's way: one array a column. A thousand tuples behind IN make it read the whole table."""
    names = [part.name for part in _KEY]
    arrays = [bindparam(part.name, type_=ARRAY(Integer if part is s.c.map_index else Text)) for part in _KEY]
    wanted = func.unnest(*arrays).table_valued(*names, name="wanted").render_derived()
    same = and_(*(part == wanted.c[part.name] for part in _KEY))
    return select(*_TRY).select_from(wanted.join(s, same))


_TRIES_BY_ARRAYS = _tries_by_arrays()
_TRIES_BY_TUPLES = select(*_TRY).where(tuple_(*_KEY).in_(bindparam("tasks", expanding=True)))


def instances_of_tasks(connection: Connection, tasks: Sequence[tuple[str, str, str, int]]) -> list[Any]:
    """Return every try of these task instances: id, key, group, identity and state of each."""
    if not tasks:
        return []
    if connection.dialect.name == "postgresql":
        arrays = {part.name: list(values) for part, values in zip(_KEY, zip(*tasks, strict=True), strict=True)}
        return list(connection.execute(_TRIES_BY_ARRAYS, arrays))
    return list(connection.execute(_TRIES_BY_TUPLES, {"tasks": list(tasks)}))


@cache  # building it costs more than running it
def _from_arrays(table: Table, names: tuple[str, ...]) -> Any:
    """Rows from one array a column: a constant statement, where VALUES of a thousand rows is parsed anew each time."""
    arrays = [bindparam(name, type_=ARRAY(table.c[name].type)) for name in names]
    rows = func.unnest(*arrays).table_valued(*(column(name, table.c[name].type) for name in names)).render_derived()
    return postgresql.insert(table).from_select(names, select(*(rows.c[name] for name in names)))


def _as_arrays(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


_GROUP = (g.c.id, g.c.digest, g.c.version, g.c.op_classpath, g.c.poke_context)


def join_groups(connection: Connection, groups: Sequence[Row]) -> list[Any]:
    """Make the groups, or take the next version of those that are there; either way their rows are locked.

    One statement a thousand: RETURNING is what has SQLAlchemy put many rows into one.

    :param groups: a row each, in hashcode order (the order that every writer locks in).
    :returns: id, digest, version and the whole identity of each: no two contexts share a group, whatever their hash.
    """
    dialect = connection.dialect.name
    if dialect in {"mysql", "mariadb"}:
        into = mysql.insert(g)
        connection.execute(into.on_duplicate_key_update(_joined(into.inserted)), groups)
        return list(connection.execute(select(*_GROUP).where(g.c.digest.in_([row["digest"] for row in groups]))))
    upsert = _upsert(dialect, tuple(groups[0]))
    return list(connection.execute(upsert, groups if dialect == "sqlite" else _as_arrays(groups)))


@cache
def _upsert(dialect: str, names: tuple[str, ...]) -> Any:
    statement: Any = sqlite.insert(g) if dialect == "sqlite" else _from_arrays(g, names)
    upsert = statement.on_conflict_do_update(index_elements=[g.c.digest], set_=_joined(statement.excluded))
    return upsert.returning(*_GROUP)


def _joined(new: Any) -> dict[str, Any]:
    """What a group takes from those who join it: the shortest step and the earliest deadline of all."""
    return {
        "version": g.c.version + new.version,
        "members": g.c.members + new.members,
        "poke_interval": lower(g.c.poke_interval, new.poke_interval),
        "next_deadline": lower(g.c.next_deadline, new.next_deadline),
    }


def add_instances(connection: Connection, instances: Sequence[Row]) -> list[Any]:
    """Insert sensing instances, a thousand a statement; return them as `instances_of_tasks` does."""
    dialect = connection.dialect
    if dialect.name == "postgresql" or dialect.insert_executemany_returning:
        rows: Any = _as_arrays(instances) if dialect.name == "postgresql" else instances
        return list(connection.execute(_insertion(dialect.name, tuple(instances[0])), rows))
    connection.execute(insert(s), instances)
    return instances_of_tasks(connection, [tuple(row[c.name] for c in _KEY) for row in instances])


@cache
def _insertion(dialect: str, names: tuple[str, ...]) -> Any:
    return (_from_arrays(s, names) if dialect == "postgresql" else insert(s)).returning(*_TRY)
