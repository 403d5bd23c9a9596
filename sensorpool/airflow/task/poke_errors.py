"""The exception of a poke in the pool, raised again by its task, for retry policies, callbacks and listeners.

A reason begins with the path of the exception's class (`poke.answer.reason_of`). The class is looked up among the
imported modules: a row of the database makes this process import no module, and call no constructor. A policy or
callback that distinguishes classes names them in the DAG file, so they have been imported.
"""

import ast
import re
import sys
from contextlib import suppress
from typing import Any, TypeVar

from sensorpool.airflow.compat.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    DagRunTriggerException,
    DownstreamTasksSkipped,
    TaskDeferralTimeout,
)

_Error = TypeVar("_Error", bound=BaseException)

_HEAD = re.compile(r"((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z_]\w*)(?:: (.*))?", re.DOTALL)
_GROUP = re.compile(r"(.*) \(([1-9]\d{0,3}) sub-exceptions?\)", re.DOTALL)
_MOST = 1_000  # exceptions of a group
_SHORT = ("builtins", "airflow.sdk.exceptions", "airflow.exceptions", "sensorpool.errors")
# requests of a task to its task runner: each has an ending of its own, or is handed back
_NO_ERRORS = (
    *(AirflowFailException, AirflowSensorTimeout, AirflowSkipException, AirflowTaskTimeout),
    *(AirflowRescheduleException, DagRunTriggerException, DownstreamTasksSkipped, TaskDeferralTimeout),
)


class PokeFailed(Exception):
    """A poke in the pool raised an exception of a class that this process does not know or cannot build.

    The class of the error is a subclass with the same name.
    """


def error_of(reason: str) -> BaseException:
    """Return the error that a poke raised."""
    return _one_of(reason, (Exception,), _NO_ERRORS) or _named(reason)


def failure_of(reason: str) -> BaseException:
    """Return the exception by which a poke failed its task: Airflow retries an AirflowTaskTimeout, and no other."""
    asked = _one_of(reason, (AirflowFailException, AirflowSensorTimeout, AirflowTaskTimeout))
    return asked or AirflowFailException(reason)


def skip_of(reason: str) -> BaseException:
    """Return the exception by which a poke skipped its task."""
    return _one_of(reason, (AirflowSkipException,)) or AirflowSkipException(reason)


def _one_of(
    reason: str, allowed: tuple[type[BaseException], ...], refused: tuple[type[BaseException], ...] = ()
) -> BaseException | None:
    head = _HEAD.fullmatch(reason)
    cls = None if head is None else _class_at(head[1])
    if head is None or cls is None or not issubclass(cls, allowed) or issubclass(cls, refused):
        return None
    try:
        return _build(cls, head[2] or "")
    except Exception:  # a class may run code when it is derived from, or printed
        return None


def _class_at(path: str) -> type[BaseException] | None:
    """Return the class at a path, without an import or a call; None if there is none."""
    parts = path.split(".")
    places = [(where, parts) for where in _SHORT] if len(parts) == 1 else []
    places += [(".".join(parts[:cut]), parts[cut:]) for cut in range(len(parts) - 1, 0, -1)]
    for where, names in places:
        found: Any = sys.modules.get(where)
        for name in names:
            found = getattr(found, "__dict__", {}).get(name)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return None


def _build(cls: type[BaseException], text: str) -> BaseException:
    """Build an exception that prints as the text; the arguments of its constructor are not known.

    :raises Exception: when it cannot be built.
    """
    native: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    for arguments in _arguments(cls, text):
        error: BaseException = native.__new__(cls, *arguments)
        error.args = arguments
        if _prints_as(error, text):
            return _noted(error)
    spelt = {"__str__": lambda _: text, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    metaclass: Any = type(cls)
    error = native.__new__(metaclass(cls.__name__, (cls,), spelt), text)
    error.args = (text,)
    return _noted(error)


def _arguments(cls: type[BaseException], text: str) -> list[tuple[Any, ...]]:
    if not text:
        return [()]
    found: list[tuple[Any, ...]] = [(text,)]
    if issubclass(cls, ExceptionGroup):
        group = _GROUP.fullmatch(text)
        count = int(group[2]) if group is not None else 0
        # no other text is that of a group; what it holds is not known here
        return [(group[1], [PokeFailed("not known here") for _ in range(count)])] if group and count <= _MOST else []
    if issubclass(cls, KeyError):  # a KeyError prints the repr of its key
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found.append((ast.literal_eval(text),))
    return found


def _prints_as(error: BaseException, text: str) -> bool:
    try:
        return str(error) == text
    except Exception:
        return False


def _named(reason: str) -> PokeFailed:
    head = _HEAD.fullmatch(reason)
    if head is None:
        return PokeFailed(reason)
    module, _, name = head[1].rpartition(".")
    named: type[PokeFailed] = type(name, (PokeFailed,), {"__module__": module or PokeFailed.__module__})
    return _noted(named(head[2]) if head[2] else named())


def _noted(error: _Error) -> _Error:
    error.add_note("Raised by a poke in the pool: of the exception only its class and text are known here.")
    return error
