"""SqlSensor: the statements of one Connection on one connection, where a poke by itself opens one for each.

Each statement has a transaction of its own, which is rolled back. So one that changes something, by a function that it
calls, has changed nothing when the sensor's own poke runs it.
"""

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.common.sql.sensors.sql import SqlSensor

from sensorpool.airflow.pool.shared_calls.by_operator import ByOperator, fits
from sensorpool.airflow.proof.codec import decode
from sensorpool.sensors.shared import time_limit

_OWN = ("get_records", "run", "get_first")  # a hook with its own version of one asks in another way
_READS = "select"

Asked = tuple[str, str]
"""A statement, and its parameters as JSON text."""


class Statements(ByOperator):
    """Statements by their Connection."""

    shared: ClassVar[Collection[str]] = ("conn_id", "hook_params")
    known: ClassVar[Collection[str]] = (*shared, "sql", "parameters", "fail_on_empty")
    structured: ClassVar[Collection[str]] = ("parameters",)

    def read(self, arguments: Mapping[str, Any]) -> tuple[None, Asked] | None:
        """Return the statement."""
        sql = arguments.get("sql")
        if arguments.get("fail_on_empty"):
            return None  # no row is an error of the poke
        if not isinstance(sql, str) or not sql.lstrip(" \t\r\n(").lower().startswith(_READS):
            return None
        return None, as_asked(sql, arguments.get("parameters"))

    def answers(self, operator: Any, kin: None, asked: Sequence[Asked]) -> Sequence[bool]:  # noqa: ARG002
        """Run the statements one after the other, for half of the time that a poke has; the others may hold.

        :raises TypeError: when the Connection's hook asks in a way of its own.
        """
        hook = operator._get_hook()
        if any(getattr(type(hook), name) is not getattr(DbApiHook, name) for name in _OWN):
            raise TypeError(f"{type(hook).__name__} asks in a way of its own")
        found: list[bool] = []
        ends = time.monotonic() + (time_limit() or math.inf) / 2
        with closing(hook.get_conn()) as connection:
            if hook.supports_autocommit:
                hook.set_autocommit(connection, False)
            for sql, parameters in asked:
                if time.monotonic() > ends:
                    break
                found.append(_may_hold(connection, sql, decode(json.loads(parameters))))
                connection.rollback()
        return found + [True] * (len(asked) - len(found))


def as_asked(sql: str, parameters: Any) -> Asked:
    """Return the question of a statement."""
    return sql, json.dumps(parameters)


def _may_hold(connection: Any, sql: str, parameters: Any) -> bool:
    """Run one statement. One that fails may hold: its own poke tells what is wrong."""
    try:
        with closing(connection.cursor()) as cursor:
            if parameters is None:
                cursor.execute(sql)
            else:
                cursor.execute(sql, parameters)
            if cursor.description is None:
                return True
            row = cursor.fetchone()
    except Exception:
        return True
    return row is not None and bool(row[0])


def shared_call(cls: type, found: Any) -> Statements | None:
    """Return the shared call of SqlSensor."""
    return Statements(found) if fits(cls, found, SqlSensor) else None
