"""An operator that the pool has built from its arguments, and keeps: its hook holds what a Connection said then.

A group may live for weeks. So what is kept is built again after a poke that raised or did not come back; and at a
bounded age, and when another waiter joins its group, unless it names Connections and none of them has changed. They are
looked at once for all that name them: a new client may cost a tenth of a second of CPU (boto3), and there are many. One
that its pokes have changed cannot be built again as it was: it is handed back.
"""

import random
import time
from collections.abc import Callable, Mapping
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException

from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import Asked, OnlyOnWorker, Unanswered
from sensorpool.airflow.proof import built
from sensorpool.errors import FailSensor, HandBack, InfraFailure, SettingsError, SkipSensor
from sensorpool.poke.unit import Renewable

LOOK_EVERY = 30.0  # seconds, at most: between two looks at one Connection
_QUICK = 2.0  # seconds: after an error that took longer, there may be no time for another poke
_NAMES = "conn_id"  # what the attributes end with that name Connections
_NOW = -1.0
# and errors of the way to the backend: the next poke, of a new operator, comes soon enough
_ANSWERS = (AirflowSkipException, AirflowFailException, SkipSensor, FailSensor, HandBack, InfraFailure, OSError)

Answer = TypeVar("Answer")


class Kept(Renewable):
    """Stands in for an operator in the pool, and keeps one.

    :param arguments: what it is built from (`rebuild`).
    """

    __slots__ = ("_arguments", "_connections", "_ends", "_lost", "_operator", "may_miss", "of_environment")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self.may_miss = built.may_miss(arguments)
        self.of_environment = built.of_environment(arguments)
        self._connections: dict[str, int | None] = {}  # what those that it names were like
        self._lost: str | None = None  # an attribute of one that its pokes had changed, and that is not used again
        self._ends = 0.0  # when its age is looked at, by the monotonic clock
        self._operator: Any = self._build_and_look()

    def build(self) -> Any:
        """Build the operator from its arguments.

        :raises Exception: whatever its constructor raises.
        """
        raise NotImplementedError

    def changed(self, _: Any) -> str | None:
        """Name an attribute of an operator that was built that has changed since; None where that does not matter."""
        return None

    def look_around(self) -> None:
        """Look, now and then, whether this process is one to poke in.

        :raises HandBack: when it is not.
        """

    def renew(self) -> None:
        """Look for changed Connections before it is used next."""
        self._ends = _NOW

    def use(self, ask: Callable[[Any], Answer], answers: tuple[type[BaseException], ...] = ()) -> Answer:
        """Ask the operator. Where one that was kept raises, a new one is asked as well: it may be its age's error.

        :param answers: exceptions that are none.
        :raises BaseException: whatever ``ask`` raises.
        :raises HandBack: when a new one would have to take the place of one that its pokes have changed.
        """
        operator, self._operator = self._operator, None  # one that raises, or does not come back, is not used again
        began = time.monotonic()
        was_kept = operator is not None and (began < self._ends or self._is_unchanged(operator, began))
        if not was_kept:
            self._lose(operator)
            operator = self._build_and_look()
        try:
            answer = ask(operator)
        except Exception as error:
            is_answer = isinstance(error, (*_ANSWERS, *answers))
            if not was_kept or is_answer or time.monotonic() - began > _QUICK:
                self._lost = self.changed(operator)
                raise
            self._lose(operator)
            operator = self._build_and_look()
            answer = ask(operator)
        self._operator = operator
        return answer

    def _lose(self, operator: Any) -> None:
        """Make sure that nothing is lost with an operator that is not used again.

        :raises HandBack: when its pokes have changed it, or one before it.
        """
        if self._lost is None and operator is not None:
            self._lost = self.changed(operator)
        if self._lost is not None:
            raise HandBack(f"its pokes have changed its attribute {self._lost}: it is stateful")

    def _build_and_look(self) -> Any:
        operator, limit = self.build(), _limit()
        self._connections = {name: _connections.look(name, limit / 2) for name in _named(operator)}
        self._ends = time.monotonic() + limit * random.uniform(0.75, 1)  # not all at once
        return operator

    def _is_unchanged(self, operator: Any, now: float) -> bool:
        """Whether it names Connections, and all are what they were when it was built."""
        limit = _limit()
        since = 0.0 if self._ends == _NOW else limit / 2
        if not self._connections or _named(operator) != self._connections.keys():
            return False
        if any(_connections.look(name, since) != was for name, was in self._connections.items()):
            return False
        self.look_around()
        self._ends = now + limit
        return True


class _Connections:
    """What the Connections were like when they were looked at last. Safe to share between threads."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int | None]] = {}
        self._lock = Lock()

    def look(self, conn_id: str, since: float) -> int | None:
        """Return a number that is another one when the Connection has changed; None, if there is none.

        One that cannot be had now counts as unchanged.

        :param since: seconds that a look counts, `LOOK_EVERY` at most.
        """
        now = time.monotonic()
        with self._lock:
            at, known = self._seen.get(conn_id, (float("-inf"), None))
            if now - at < min(LOOK_EVERY, since):
                return known
            self._seen[conn_id] = (now, known)  # others need not look meanwhile
        with Asked():  # no poke is under way: nothing is refused to it
            try:
                known = _digest(BaseHook.get_connection(conn_id))
            except AirflowNotFoundException:
                known = None
            except (Exception, OnlyOnWorker, Unanswered):
                return known
        with self._lock:
            self._seen[conn_id] = (now, known)
        return known


_connections = _Connections()


def _digest(connection: Any) -> int:
    names = ("conn_type", "login", "password", "host", "schema", "port", "extra")
    return hash(tuple(getattr(connection, name, None) for name in names))


def _named(operator: Any) -> set[str]:
    return {value for name, value in vars(operator).items() if name.endswith(_NAMES) and isinstance(value, str)}


@cache
def _limit() -> float:
    try:
        return AirflowSettings.load().rebuild_after
    except SettingsError:  # of Airflow's side: no reason for a poke to fail
        return float(AirflowSettings.model_fields["rebuild_after"].default)
