"""One change in one transaction, run again where that may help."""

import random
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sensorpool.errors import Unreachable
from sensorpool.store import told
from sensorpool.store.codes import is_conflict, is_locked, is_unreachable

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

ATTEMPTS = 8
LOCKED_PATIENCE = 12.0  # seconds; a transaction that has held a lock for so long is not done at the next attempt


class Transaction:
    """How a change is run.

    :param attempts: how often it is run at most.
    :param again: what is called in place of the change after a failed attempt, with the same arguments.
    :param kept: asks whether the result of an attempt whose COMMIT was not answered is there; then it counts.
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

        On deadlock, serialization failure or a lost connection it is called again. It must be harmless when it is
        repeated: an answer to COMMIT may get lost on its way.

        :raises Unreachable: when the database does not answer, or is busy with others, after the last attempt.
        """
        started = time.monotonic()
        doubtful: list[Result] = []  # what attempts made before a COMMIT that was not answered
        found: list[Result] = []
        for attempt in range(1, self._attempts + 1):
            try:
                with self._engine.begin() as connection:
                    for result in doubtful:
                        if self._kept is not None and self._kept(connection, result):
                            found.append(result)
                            return result
                    act = change if attempt == 1 or self._again is None else self._again
                    result = act(connection, *args, **named)
                    doubtful.append(result)
                return result
            except (DBAPIError, PoolTimeout) as error:
                if found:
                    return found[0]  # nothing of this attempt needs to be kept
                is_last = attempt == self._attempts
                if not (is_unreachable(error) or is_conflict(error)) or (is_last and isinstance(error, IntegrityError)):
                    told.explain(error)
                    raise
                if is_last or (is_locked(error) and time.monotonic() - started >= LOCKED_PATIENCE):
                    raise Unreachable(told.unreachable(self._engine, error), in_doubt=bool(doubtful)) from error
            time.sleep(random.uniform(0, min(1.0, 0.02 * 2**attempt)))
        raise AssertionError("unreachable")
