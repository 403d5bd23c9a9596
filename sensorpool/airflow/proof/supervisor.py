"""What a task asks its supervisor for: an XCom, a run's state, a Variable to be set, a Connection.

The supervisor asks the API server, and that answers one task. So on the worker it is noted what the first poke asks for
(`noting`); in the pool there is no supervisor: what stands in its place answers for Connections and Variables, as the
server does, and refuses the rest (`stand_in`). Code of Airflow's tells by that place that it runs for a task, and asks
for Connections and Variables as on a worker: its secrets backend first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow.sdk.execution_time import supervisor, task_runner

from sensorpool.airflow import errors, secrets_chain
from sensorpool.instrumentation.redaction import one_line

_PLACE = "SUPERVISOR_COMMS"
_LOADED = "ensure_secrets_backend_loaded"


@contextmanager
def noting(note: Callable[[str], object], looked_up: Callable[[str, bool], object]) -> Iterator[None]:
    """Note what is asked for, but Connections and Variables.

    :param looked_up: is told of those, and whether they are there; not of those that are found before the supervisor
        is asked.
    """
    native = getattr(task_runner, _PLACE, None)
    if native is None:
        yield
        return
    setattr(task_runner, _PLACE, _Noted(native, note, looked_up))
    try:
        yield
    finally:
        setattr(task_runner, _PLACE, native)


class _Noted:
    """The supervisor, noting what it is asked for."""

    def __init__(self, native: Any, note: Callable[[str], object], looked_up: Callable[[str, bool], object]) -> None:
        self._native = native
        self._note = note
        self._looked_up = looked_up

    def send(self, msg: Any) -> Any:
        self._see(msg)
        return self._heard(msg, self._native.send(msg))

    async def asend(self, msg: Any) -> Any:
        self._see(msg)
        return self._heard(msg, await self._native.asend(msg))

    def _see(self, msg: Any) -> None:
        if secrets_chain.looked_up(msg) is None and not secrets_chain.masks(msg):
            self._note(f"asks Airflow as its task ({type(msg).__name__})")

    def _heard(self, msg: Any, answer: Any) -> Any:
        if (what := secrets_chain.looked_up(msg)) is not None:
            self._looked_up(what, not secrets_chain.is_missing(answer))
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)


def stand_in() -> None:
    """Take the place of the supervisor in this process, which is the pool's."""
    if getattr(task_runner, _PLACE, None) is None:
        setattr(task_runner, _PLACE, _InThePool())
        setattr(supervisor, _LOADED, _refusing(getattr(supervisor, _LOADED)))


def _refusing(load: Callable[[], Any]) -> Callable[[], Any]:
    """Refuse what a secrets backend would answer that can be loaded on workers only."""

    def ensure_loaded() -> Any:
        try:
            return load()
        except Exception as error:
            raise errors.refuse(f"its poke needs a secrets backend that the pool lacks: {one_line(error)}") from None

    return ensure_loaded


class _InThePool:
    """Answers for Connections and Variables, and refuses the rest."""

    def send(self, msg: Any) -> Any:
        what = secrets_chain.looked_up(msg)
        if what is None:
            if secrets_chain.masks(msg):  # this process has masked it
                return None
            raise _refused(type(msg).__name__)
        errors.keep_to_environment(what)
        found, why = None, None
        try:
            found = secrets_chain.find(msg)
        except Exception as error:
            if secrets_chain.is_away(error):
                raise errors.unanswered(error) from None
            why = one_line(error)
        if found is None:
            errors.miss(what, why)
            return secrets_chain.not_found(msg)
        return found

    async def asend(self, msg: Any) -> Any:
        return self.send(msg)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _refused(name)


def _refused(name: str) -> errors.OnlyOnWorker:
    return errors.refuse(f"its poke asks Airflow as its task ({name}), which only its worker can")
