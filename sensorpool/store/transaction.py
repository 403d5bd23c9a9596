"""One change in one transaction, repeated where that may help."""

import random
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import Unreachable
from sensorpool.store import database_errors
from sensorpool.store.database_errors import is_conflict, is_locked, is_unreachable

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

ATTEMPTS = 8
LOCKED_PATIENCE = 12.0  # seconds after which a lock of another transaction ends the attempts


class Transaction:
    """A transaction that runs a change.

    :param attempts: how often the change is run at most.
    :param again: is called in place of the change after a failed attempt, with the same arguments.
    :param kept: is asked after a COMMIT without an answer whether the result is in the database; then it counts.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        attempts: int = ATTEMPTS,
        again: Callable[..., Any] | None = None,
        kept: Callable[[Connection, Any], bool] | None = None,
    ) -> None:
        self._engine = engine
        self._attempts = attempts
        self._again = again
        self._kept = kept

    def run(
        self,
        change: Callable[Concatenate[Connection, Arguments], Result],
        /,
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Call ``change`` with a connection and the arguments that follow, and commit.

        On a deadlock, a serialization failure or a lost connection ``change`` is called again. It must be harmless
        when it is repeated, because the answer to a COMMIT may get lost.

        :raises Unreachable: when the database does not answer, or stays busy, after the last attempt.
        """
        started = time.monotonic()
        doubtful: list[Result] = []  # results of attempts whose COMMIT had no answer
        confirmed: list[Result] = []
        for attempt in range(1, self._attempts + 1):
            try:
                with self._engine.begin() as connection:
                    for result in doubtful:
                        if self._kept is not None and self._kept(connection, result):
                            confirmed.append(result)
                            return result
                    act = change if attempt == 1 or self._again is None else self._again
                    result = act(connection, *args, **named)
                    doubtful.append(result)
                return result
            except (DBAPIError, PoolTimeout) as error:
                if confirmed:
                    return confirmed[0]  # this attempt only looked, so its own error does not matter
                is_last = attempt == self._attempts
                if not (is_unreachable(error) or is_conflict(error)) or (is_last and isinstance(error, IntegrityError)):
                    database_errors.explain(error)
                    raise
                if is_last or (is_locked(error) and time.monotonic() - started >= LOCKED_PATIENCE):
                    said = database_errors.unreachable(self._engine, error)
                    raise Unreachable(said, in_doubt=bool(doubtful)) from error
            time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
        raise AssertionError("unreachable")
