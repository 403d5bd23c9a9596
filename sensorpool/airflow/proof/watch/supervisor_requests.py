"""A task's requests to its supervisor: for an XCom, a run's state, a Connection, for a Variable to be set.

The supervisor passes a request on to the API server, which answers for one task. So on the worker the requests of the
first poke are noted (`noting`). The pool has no supervisor: a substitute looks up Connections and Variables as the
server does, and denies all other requests (`stand_in`). Airflow's code sees the substitute and takes the process for
that of a task: it looks for Connections and Variables as on a worker, in the secrets backend first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk.execution_time import supervisor, task_runner

from sensorpool.airflow.compat import secrets_backends
from sensorpool.airflow.errors import OnlyOnWorker
from sensorpool.airflow.proof.watch import denials
from sensorpool.instrumentation.redaction import one_line

LookUp = Callable[[Any, str | None], Any]
_PLACE = "SUPERVISOR_COMMS"
_LOADED = "ensure_secrets_backend_loaded"


@contextmanager
def noting(
    note: Callable[[str], object], looked_up: Callable[[str, bool], object], but: frozenset[str] = frozenset()
) -> Iterator[bool]:
    """Note the requests to the supervisor, except lookups of Connections and Variables.

    The value is whether there is a supervisor: without one no lookup is heard.

    :param looked_up: called for each lookup, with whether it found something; not for a lookup that is answered
        without the supervisor.
    :param but: the names of further requests that are not noted.
    """
    native = getattr(task_runner, _PLACE, None)
    if native is None:
        yield False
        return
    setattr(task_runner, _PLACE, _Noted(native, note, looked_up, but))
    try:
        yield True
    finally:
        setattr(task_runner, _PLACE, native)


class _Noted:
    """The supervisor; requests to it are noted."""

    def __init__(
        self,
        native: Any,
        note: Callable[[str], object],
        looked_up: Callable[[str, bool], object],
        but: frozenset[str],
    ) -> None:
        self._native = native
        self._but = but
        self._note = note
        self._looked_up = looked_up

    def send(self, msg: Any) -> Any:
        self._see(msg)
        return self._heard(msg, self._native.send(msg))

    async def asend(self, msg: Any) -> Any:
        self._see(msg)
        return self._heard(msg, await self._native.asend(msg))

    def _see(self, msg: Any) -> None:
        if type(msg).__name__ in self._but:
            return
        if secrets_backends.lookup_name(msg) is None and not secrets_backends.is_masking(msg):
            self._note(f"asks Airflow as its task ({type(msg).__name__})")

    def _heard(self, msg: Any, answer: Any) -> Any:
        if (name := secrets_backends.lookup_name(msg)) is not None:
            self._looked_up(name, not secrets_backends.is_missing(answer))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


def stand_in(look_up: LookUp | None = None, is_away: Callable[[Exception], bool] | None = None) -> None:
    """Put a substitute in the place of the supervisor, in this process of the pool.

    :param look_up: answers a lookup for a team, or for none; None: as the server does.
    :param is_away: whether an error of that says that no answer can be had now.
    """
    if getattr(task_runner, _PLACE, None) is None:
        setattr(task_runner, _PLACE, _InThePool(look_up, is_away))
        setattr(supervisor, _LOADED, _denying(getattr(supervisor, _LOADED)))


def _denying(load: Callable[[], Any]) -> Callable[[], Any]:
    """Deny lookups when a secrets backend cannot be loaded here: a worker may load it."""

    def ensure_loaded() -> Any:
        try:
            return load()
        except Exception as error:
            raise denials.deny(f"its poke needs a secrets backend that the pool lacks: {one_line(error)}") from None

    return ensure_loaded


class _InThePool:
    """Answers lookups of Connections and Variables, and denies all other requests."""

    def __init__(self, look_up: LookUp | None = None, is_away: Callable[[Exception], bool] | None = None) -> None:
        self._look_up = look_up
        self._is_away = is_away

    def send(self, msg: Any) -> Any:
        name = secrets_backends.lookup_name(msg)
        if name is None:
            if secrets_backends.is_masking(msg):  # this process has masked the secret
                return None
            raise _denied(type(msg).__name__)
        denials.keep_to_environment(name)
        found, why = None, None
        try:
            team = denials.team_here()
        except LookupError as error:
            raise denials.report_unavailable(error) from None
        try:
            found = (self._look_up or secrets_backends.look_up)(msg, team)
        except Exception as error:
            if (self._is_away or secrets_backends.is_database_away)(error):
                raise denials.report_unavailable(error) from None
            why = one_line(error)
        if found is None:
            denials.report_missing(name, why)
            return secrets_backends.not_found(msg)
        return found

    async def asend(self, msg: Any) -> Any:
        return self.send(msg)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _denied(name)


def _denied(name: str) -> OnlyOnWorker:
    return denials.deny(f"its poke asks Airflow as its task ({name}), which only its worker can")
