"""Functions among a sensor's arguments: in a poke_context each is its name, and the pool finds it by that.

A function can be given by its name if it is the one that its module has there: a plain function of a module, and no
lambda, no method, and nothing that a decorator has made. The pool imports nothing that `callables_enabled` does not
list, and of a listed module it takes such functions only: ``mycompany.checks.system`` is not ``os.system``.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

from airflow.sdk.bases.sensor import BaseSensorOperator

from sensorpool.airflow import callables_enabled
from sensorpool.airflow.compat import task_runtime
from sensorpool.airflow.configuration import AirflowSettings
from sensorpool.airflow.errors import NotPoolable
from sensorpool.airflow.proof import known_sensors
from sensorpool.airflow.proof.codec import CALLABLE, TYPE, VALUE
from sensorpool.airflow.proof.state import references
from sensorpool.airflow.proof.state.patched_code import OF_DAG_FILES
from sensorpool.errors import CannotPoke
from sensorpool.instrumentation import logs
from sensorpool.instrumentation.redaction import one_line

Found = Mapping[str, FunctionType]
"""Functions by their names."""

_KIND = "callable"
_OF_DAG_FILES = "sensorpool.airflow.pool.dag_files.DagFileSensor"  # takes functions of DAG files
_RETRY_AFTER = 15.0  # seconds until a module whose import failed is imported again
_failures: dict[str, tuple[float, str]] = {}  # by module: when to try it again, by the monotonic clock, and why


def name_of(value: Any, where: str) -> str:
    """Return the name by which other processes can import a function.

    :param where: its place among the arguments, for the message.
    :raises NotPoolable: when it is no plain function of a module.
    """
    if (why := _why_nameless(value)) is not None:
        raise NotPoolable(f"{where} is a callable that the pool cannot import by a name: {why}", _KIND)
    return f"{value.__module__}.{value.__name__}"


def _why_nameless(value: Any) -> str | None:
    if type(value) is not FunctionType:
        return "it is no plain function"
    module, name = value.__module__, value.__qualname__
    if not isinstance(module, str) or OF_DAG_FILES.match(module):
        return f"it is defined in a DAG file; define it in an installed module, or list {_OF_DAG_FILES}"
    if "<" in name or "." in name:
        return f"{name} is defined within another object; define it in a module itself"
    has_wrapper = value.__code__.co_qualname != name or value.__name__ != name or "__wrapped__" in vars(value)
    if has_wrapper or value.__closure__ or value.__globals__.get("__name__") != module:
        return "a decorator has made it"
    holder = sys.modules.get(module)
    if holder is None or vars(holder) is not value.__globals__ or vars(holder).get(name) is not value:
        return f"{module} has another object by that name"
    return None if callables_enabled.is_name(f"{module}.{name}") else "its name is not made of ASCII letters"


def check(sensor: BaseSensorOperator, context: Mapping[str, Any], poke_context: Mapping[str, Any], ours: Any) -> None:
    """Check that the pool may import the functions of a poke_context, and that they need nothing of the task.

    :param ours: the `AirflowSettings`.
    :raises NotPoolable: when it may not, or when they need more.
    """
    names = dict.fromkeys(names_in(poke_context))
    if not names:
        return
    for name in names:
        module = name.rpartition(".")[0]
        if (folder := task_runtime.bundle_folder(context)) and _is_within(vars(sys.modules[module]), folder):
            why = f"its callable {name} lies in the folder of the DAGs, which the pool does not import from"
            raise NotPoolable(f"{why}; define it in an installed module", _KIND)
        if callables_enabled.is_pythons(name):
            raise NotPoolable(f"its callable {name} is of Python itself: call it in a function of your own", _KIND)
        if not callables_enabled.lists(ours.callables_enabled, name):
            raise NotPoolable(f"its callable {name} is not in [sensorpool] callables_enabled: add it there", _KIND)
    if added := context.keys() - task_runtime.template_names():
        why = f"its template context has a name of its own, {min(added)}, which its callable may ask for"
        raise NotPoolable(why, "reads_context")
    if (asked := _asked_of_context(sensor)) is not None:
        raise NotPoolable(asked, "reads_context")


def _is_within(module: Mapping[str, Any], folder: str) -> bool:
    file, folder = os.path.realpath(str(module.get("__file__"))), os.path.realpath(folder)
    installed = references.is_installed(file)
    return not installed and os.path.commonpath([file, folder]) == folder


def _asked_of_context(sensor: BaseSensorOperator) -> str | None:
    """Return what a callable asks of the template context, judged by its parameters; None if nothing is known."""
    try:
        taken = names_taken(sensor)
    except NotPoolable as error:
        return str(error)
    for name in sorted(taken):
        argument, given = taken[name]
        advice = f"; give it in {given[0]}, as '{{{{ {name} }}}}'" if given else ""
        return f"its {argument} takes {name} of the template context, which only a worker has{advice}"
    return None


def names_taken(sensor: BaseSensorOperator) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the names of the template context that callables of a sensor take, judged by their parameters.

    :returns: for each name the argument that takes it, and the arguments that can give such names.
    :raises NotPoolable: when one takes the whole of it (``**``).
    """
    taken: dict[str, tuple[str, tuple[str, ...]]] = {}
    for argument, given in known_sensors.called_with_context(type(sensor)).items():
        function = getattr(sensor, argument, None)
        if type(function) is not FunctionType:
            continue
        parameters = signature(function).parameters
        if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            why = f"its {argument} takes the whole template context (**), which only a worker has: name what it needs"
            raise NotPoolable(why, "reads_context")
        if given is None:
            continue  # it gets all of it or nothing
        found = parameters.keys() & task_runtime.template_names()
        found -= {name for each in given for name in getattr(sensor, each, None) or ()}
        taken |= dict.fromkeys(found, (argument, given))
    return taken


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of the functions in a poke_context; what is no name is left out."""
    if isinstance(value, list):
        for item in value:
            yield from names_in(item)
    elif isinstance(value, Mapping):
        if value.get(TYPE) == CALLABLE and callables_enabled.is_name(value.get(VALUE)):
            yield value[VALUE]
            return
        for item in value.values():
            yield from names_in(item)


def imported(name: Any) -> FunctionType:
    """Return the function of a name on a worker, which has imported it.

    :raises ValueError: when there is none.
    """
    module, _, own = str(name).rpartition(".")
    function = vars(sys.modules[module]).get(own) if module in sys.modules else None
    if isinstance(function, FunctionType) and _is_named(function, name):
        return function
    raise ValueError(f"{str(name)[:80]} is no function of that name")


def find(names: Iterable[str]) -> Found:
    """Find functions by their names in the pool; import their modules.

    :raises CannotPoke: when one is not listed in this process's `callables_enabled`, cannot be imported, or is no such
        function here: another process may have it.
    """
    return {name: _find(name) for name in dict.fromkeys(names)}


def _find(name: str) -> FunctionType:
    if not callables_enabled.lists(_enabled(), name):
        raise CannotPoke(f"{name} is not enabled: add it to SENSORPOOL_CALLABLES_ENABLED")
    module, _, own = name.rpartition(".")
    function = vars(_import(module, name)).get(own)
    if isinstance(function, FunctionType) and _is_named(function, name):
        return function
    raise CannotPoke(f"{name} is no plain function of that name: its module has another version here")


def _is_named(function: FunctionType, name: Any) -> bool:
    return _why_nameless(function) is None and f"{function.__module__}.{function.__name__}" == name


def _import(module: str, name: str) -> Any:
    loaded = sys.modules.get(module)
    if loaded is not None and not references.is_half_imported(vars(loaded)):
        return loaded
    again_at, why = _failures.get(module, (0.0, ""))
    if time.monotonic() < again_at:
        raise CannotPoke(why)
    try:
        return import_module(module)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # an import may raise anything, SystemExit too
        why = f"{name} cannot be imported: {one_line(error)}"
    finally:
        logs.restore()
    _failures[module] = time.monotonic() + _RETRY_AFTER, why
    raise CannotPoke(why)


@cache
def _enabled() -> tuple[str, ...]:
    """Return this process's `callables_enabled`.

    :raises SettingsError: when a setting of Airflow's side is wrong.
    """
    return AirflowSettings.load().callables_enabled
