"""The classes of hooks that Connections give, and whose they are: of Airflow's project, or of a company."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import metadata
from typing import Any

from airflow.sdk import BaseHook

from sensorpool.airflow.compat import features

Hear = Callable[[type], object]

_GET_HOOK = "get_hook"
_PROVIDERS = "airflow.providers."
_PUBLISHER = "dev@airflow.apache.org"
_CONNECTIONS = ("airflow.sdk.definitions.connection", "airflow.models.connection")  # their classes have a get_hook
# what a company's class replaces by Airflow's configuration, for the hooks of a provider
_REPLACED = {"airflow.providers.amazon.aws.hooks.base_aws": "SessionFactory"}


@contextmanager
def heard(hear: Hear) -> Iterator[None]:
    """Call ``hear`` with the class of each hook that a Connection gives, before the hook is made.

    A company's class that Airflow's configuration gives to the hooks of a provider counts as well.
    """
    with ExitStack() as stack:
        for place, name, stand_in in [*_getters(hear), *_replaced(hear)]:
            stack.callback(setattr, place, name, vars(place)[name])
            setattr(place, name, stand_in)
        yield


def hear_always(hear: Hear) -> None:
    """Call ``hear`` as `heard` does, until this process ends. A second call finds what was imported since."""
    _hear_connections(hear)
    for place, name, stand_in in _replaced(hear):
        setattr(place, name, stand_in)


@cache
def _hear_connections(hear: Hear) -> None:
    for place, name, stand_in in _getters(hear):
        setattr(place, name, stand_in)


def _getters(hear: Hear) -> Iterator[tuple[Any, str, Any]]:
    for module in _CONNECTIONS:
        with suppress(ImportError):  # a machine may have Airflow's Task SDK alone
            connection = importlib.import_module(module).Connection
            yield connection, _GET_HOOK, _heard(vars(connection)[_GET_HOOK], hear)


def _replaced(hear: Hear) -> Iterator[tuple[Any, str, Any]]:
    for module, name in _REPLACED.items():
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type) and not is_airflows(cls.__module__):
            yield sys.modules[module], name, _heard_class(cls, hear)


def _heard_class(cls: type, hear: Hear) -> Callable[..., Any]:
    def make(*arguments: Any, **named: Any) -> Any:
        hear(cls)
        return cls(*arguments, **named)

    return make


def _heard(native: Callable[..., Any], hear: Hear) -> Callable[..., Any]:
    def get_hook(self: Any, *arguments: Any, **named: Any) -> Any:
        expected = _class_of(self)
        if expected is not None:
            hear(expected)
        hook = native(self, *arguments, **named)
        if type(hook) is not expected:
            hear(type(hook))
        return hook

    return get_hook


def _class_of(connection: Any) -> type | None:
    """Return the class of the hook that a Connection will give; None if that cannot be told before."""
    try:
        hook: Any = _hooks()[connection.conn_type]
        path, _, class_name = hook.hook_class_name.rpartition(".")
        found = getattr(importlib.import_module(path), class_name)
    except Exception:  # its get_hook says what is wrong
        return None
    return found if isinstance(found, type) else None


def _hooks() -> Any:
    """Return what a Connection's ``get_hook`` looks its type up in."""
    if features.has(features.SDK_HOOKS):
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

        return ProvidersManagerTaskRuntime().hooks
    from airflow.providers_manager import ProvidersManager

    return ProvidersManager().hooks


def companies_classes(cls: type) -> list[type]:
    """Return a class of a hook and the bases of it that are hooks, without those of Airflow's project and of Python."""
    hooks = [base for base in cls.__mro__ if base is cls or issubclass(base, BaseHook)]
    return [base for base in hooks if not (is_airflows(base.__module__) or _is_of_python(base.__module__))]


@cache
def is_airflows(module: str) -> bool:
    """Whether a module is of Airflow, or of a provider that Airflow's project publishes."""
    if not f"{module}.".startswith(_PROVIDERS):
        return module.partition(".")[0] == "airflow"
    parts = module.split(".")[2:4]
    return any(_is_published("-".join(("apache-airflow-providers", *parts[:count]))) for count in (1, 2))


def _is_of_python(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


@cache
def _is_published(distribution: str) -> bool:
    try:
        about = metadata.metadata(distribution)
    except metadata.PackageNotFoundError:
        return False
    return any(_PUBLISHER in author for author in about.get_all("Author-email") or ())
