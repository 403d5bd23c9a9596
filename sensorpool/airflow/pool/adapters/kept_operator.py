"""An operator that the pool has built from its arguments, and keeps: its hook holds the Connection of that time.

A group may live for weeks. So an operator is built again after a poke that raised or did not return. It is built again
at a bounded age too, and when another waiter joins its group: its constructor may take something from elsewhere (a
Variable, today's date), and what is built then is held against what was registered. Only an operator of a class that is
known to take nothing but its arguments stays as it is while it names Connections and none of them has changed.
A Connection is read once for all operators that name it: a new client may cost a tenth of a second of CPU (boto3), and
there are many operators. An operator that its pokes have changed cannot be built again as it was: it is handed back.
"""

import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from threading import Lock
from typing import Any, ClassVar, TypeVar

from airflow.sdk import BaseHook

from sensorpool.airflow.compat.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import LookupUnavailable, OnlyOnWorker
from sensorpool.airflow.proof.arguments import external_inputs
from sensorpool.airflow.proof.watch import task_reads
from sensorpool.airflow.proof.watch.company_hooks import HooksOfSensor
from sensorpool.airflow.proof.watch.denials import Denials
from sensorpool.errors import FailSensor, HandBack, InfraFailure, SettingsError, SkipSensor
from sensorpool.poke.unit import Renewable

READ_EVERY = 30.0  # seconds at most between two reads of one Connection
_QUICK = 2.0  # seconds: after an error that took longer there may be no time for another poke
_CONN_ID = "conn_id"  # the end of the names of attributes that name Connections
_NOW = -1.0
# answers, and errors on the way to the backend: for those the next poke, of a new operator, comes soon enough
_ANSWERS = (AirflowSkipException, AirflowFailException, SkipSensor, FailSensor, HandBack, InfraFailure, OSError)

Answer = TypeVar("Answer")


class KeptOperator(Renewable):
    """Stands in for an operator in the pool, and keeps one.

    :param arguments: those of its constructor, encoded (`arguments.rebuild`).
    """

    __slots__ = (
        *("_arguments", "_changed_name", "_connections", "_expires", "_operator"),
        *("hooks", "known_missing", "of_environment", "team"),
    )
    is_stateless: ClassVar[bool] = False  # whether its class is known to take nothing but its arguments

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self.known_missing = external_inputs.missing_lookups_of(arguments)
        self.of_environment = external_inputs.lookups_in_environment(arguments)
        self.hooks = HooksOfSensor(external_inputs.hooks_of(arguments))
        self.team = external_inputs.team_of(arguments)
        self._connections: dict[str, int | None] = {}  # the state of each Connection that the operator names
        self._changed_name: str | None = None  # an attribute that pokes have changed of an operator that is given up
        self._expires = 0.0  # when the operator is too old, by the monotonic clock
        self._operator: Any = self._build_anew()

    def build(self) -> Any:
        """Build the operator from its arguments.

        :raises Exception: whatever its constructor raises.
        """
        raise NotImplementedError

    def changed_attribute(self, _: Any) -> str | None:
        """Return the name of an attribute that pokes have changed; None if no change matters."""
        return None

    def check_shared_state(self) -> None:
        """Check that the state which all operators of the class share here is unchanged.

        :raises HandBack: when it has changed.
        """

    def raising_denials(self, operator: Any, hooks: HooksOfSensor | None = None) -> AbstractContextManager[list[str]]:
        """Raise at the end of a use of the operator what it was denied: see `task_reads.raising_denials`."""
        return task_reads.raising_denials(operator, self.known_missing, self.of_environment, hooks, self.team)

    def renew(self) -> None:
        """Check the Connections before the next use."""
        self._expires = _NOW

    def use(self, ask: Callable[[Any], Answer], answers: tuple[type[BaseException], ...] = ()) -> Answer:
        """Ask the operator. If a kept one raises, ask a new one as well: the error may come from the old one's age.

        :param answers: exceptions that are answers, and no errors.
        :raises BaseException: whatever ``ask`` raises.
        :raises HandBack: when a new operator would have to replace one that its pokes have changed.
        """
        operator, self._operator = self._operator, None  # one that raises, or does not return, is not used again
        began = time.monotonic()
        was_kept = operator is not None and (began < self._expires or self._is_unchanged(operator, began))
        if not was_kept:
            self._check_unchanged(operator)
            operator = self._build_anew()
        try:
            answer = ask(operator)
        except Exception as error:
            is_answer = isinstance(error, (*_ANSWERS, *answers))
            if not was_kept or is_answer or time.monotonic() - began > _QUICK:
                self._changed_name = self.changed_attribute(operator)
                raise
            self._check_unchanged(operator)
            operator = self._build_anew()
            answer = ask(operator)
        self._operator = operator
        return answer

    def _check_unchanged(self, operator: Any) -> None:
        """Check that no state is lost with an operator that is not used again.

        :raises HandBack: when its pokes have changed it, or an operator before it.
        """
        if self._changed_name is None and operator is not None:
            self._changed_name = self.changed_attribute(operator)
        if self._changed_name is not None:
            raise HandBack(f"its pokes have changed its attribute {self._changed_name}: it is stateful")

    def _build_anew(self) -> Any:
        operator, limit = self.build(), _limit()
        self._connections = {
            name: _connections.state_of(name, self.team, limit / 2) for name in _connection_ids(operator)
        }
        self._expires = time.monotonic() + limit * random.uniform(0.75, 1)  # not all at once
        return operator

    def _is_unchanged(self, operator: Any, now: float) -> bool:
        """Whether a stateless operator names Connections, and all of them are as they were when it was built."""
        if not self.is_stateless:
            return False
        limit = _limit()
        since = 0.0 if self._expires == _NOW else limit / 2
        if not self._connections or _connection_ids(operator) != self._connections.keys():
            return False
        if any(_connections.state_of(name, self.team, since) != was for name, was in self._connections.items()):
            return False
        self.check_shared_state()
        self._expires = now + limit
        return True


class _Connections:
    """The state of Connections at their last read. Safe to share between threads."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str | None], tuple[float, int | None]] = {}
        self._lock = Lock()

    def state_of(self, conn_id: str, team: str | None, since: float) -> int | None:
        """Return a number that differs when the Connection has changed; None if there is no such Connection.

        A Connection that cannot be read now counts as unchanged.

        :param team: whose Connection it is; None: of no team.
        :param since: seconds that a read counts, `READ_EVERY` at most.
        """
        now, key = time.monotonic(), (conn_id, team)
        with self._lock:
            at, known = self._states.get(key, (float("-inf"), None))
            if now - at < min(READ_EVERY, since):
                return known
            self._states[key] = (now, known)  # other threads need not read meanwhile
        with Denials(team=team):  # no poke is under way: what is denied here concerns none
            try:
                known = _digest(BaseHook.get_connection(conn_id))
            except AirflowNotFoundException:
                known = None
            except (Exception, OnlyOnWorker, LookupUnavailable):
                return known
        with self._lock:
            self._states[key] = (now, known)
        return known


_connections = _Connections()


def _digest(connection: Any) -> int:
    names = ("conn_type", "login", "password", "host", "schema", "port", "extra")
    return hash(tuple(getattr(connection, name, None) for name in names))


def _connection_ids(operator: Any) -> set[str]:
    return {value for name, value in vars(operator).items() if name.endswith(_CONN_ID) and isinstance(value, str)}


@cache
def _limit() -> float:
    try:
        return AirflowSettings.load().rebuild_after
    except SettingsError:  # a setting of Airflow's side is no reason for a poke to fail
        return float(AirflowSettings.model_fields["rebuild_after"].default)
