"""Groups in trouble, put there by hand."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from sensorpool.model.trouble import Trouble
from sensorpool.store import troubles
from sensorpool.store.database import Database
from sensorpool.store.schema import poke_group
from sensorpool.store.troubles import Changed


def put_in_trouble(database: Database, group_ids: Iterable[int], **trouble: Any) -> None:
    """Give groups a trouble, as their pokes would have.

    :param trouble: the fields of `Trouble`.
    """

    def put(connection: Connection) -> None:
        groups = select(poke_group.c.id, poke_group.c.shardcode).where(poke_group.c.id.in_(list(group_ids)))
        changed = {group_id: Changed(Trouble(**trouble), code) for group_id, code in connection.execute(groups)}
        troubles.write(connection, changed)

    database.run(put)


def trouble_of(database: Database, group_id: int) -> Trouble:
    """Return the trouble of a group."""
    return database.read(troubles.of_group, group_id)
