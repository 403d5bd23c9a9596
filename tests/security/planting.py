"""Rows that nobody registered: put into the tables by SQL, as somebody with a hand on the database would."""

import os
from typing import Any

from sqlalchemy import insert, select

from sensorpool.model.trouble import Trouble
from sensorpool.store import troubles
from sensorpool.store.database import Database
from sensorpool.store.schema import poke_group, sensor_instance
from sensorpool.store.troubles import Changed


def plant(database: Database, op_classpath: str, poke_context: str, strikes: int = 0, **columns: Any) -> int:
    """Plant a group with one waiter; ``columns`` are those of either table. Return the waiter's id.

    :param strikes: of the group; from one on it is poked in child processes.
    """
    hashcode = int.from_bytes(os.urandom(7), "big")
    with database.engine.begin() as connection:
        now = database.now(connection)
        group = {
            "digest": os.urandom(32),
            "hashcode": hashcode,
            "shardcode": hashcode % 10_000,
            "version": 1,
            "members": 1,
            "op_classpath": op_classpath,
            "poke_context": poke_context,
            "poke_interval": 2_000,
            "phase": 0,
            "registered_at": now,
            "next_deadline": now + 600_000,
        }
        group |= {name: value for name, value in columns.items() if name in poke_group.c}
        group_id = connection.execute(insert(poke_group).values(group)).inserted_primary_key[0]  # type: ignore[index]
        if strikes:
            trouble = Changed(Trouble(strikes=strikes), hashcode % 10_000)
            troubles.write(connection, {group_id: trouble})
        instance = {
            "dag_id": "planted",
            "task_id": "t",
            "run_id": os.urandom(8).hex(),
            "map_index": -1,
            "try_number": 1,
            "operator": "x",
            "op_classpath": op_classpath,
            "group_id": group_id,
            "joined_version": 1,
            "hashcode": hashcode,
            "shardcode": hashcode % 10_000,
            "state": "sensing",
            "poke_context": poke_context,
            "execution_context": '{"poke_interval": 2.0, "timeout": 600.0}',
            "poke_interval": 2_000,
            "start_date": now,
            "timeout_at": now + 600_000,
            "next_deadline": now + 600_000,
        }
        instance |= {name: value for name, value in columns.items() if name in sensor_instance.c}
        return int(connection.execute(insert(sensor_instance).values(instance)).inserted_primary_key[0])  # type: ignore[index]


def rows(database: Database) -> dict[int, dict[str, Any]]:
    """Return all instances by id."""
    with database.engine.connect() as connection:
        return {row["id"]: dict(row) for row in connection.execute(select(sensor_instance)).mappings()}
