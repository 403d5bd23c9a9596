"""Imports that may be tried again: the half-made modules that a failed import leaves are removed."""

import sys
from collections.abc import Iterable
from importlib import import_module, invalidate_caches
from types import FunctionType, ModuleType
from typing import Any


def import_anew(name: str) -> ModuleType:
    """Import a module; a failure leaves nothing behind that would spoil the next attempt.

    When an import fails, Python removes its module from ``sys.modules`` but keeps the modules that it imported before.
    Some of them are half made: their package was removed, or they refer to a module that was removed. They are removed
    as well, so that the next attempt makes them anew.

    :raises BaseException: whatever the module raises.
    """
    invalidate_caches()  # the file may be newer than the cached listing of its folder
    before = frozenset(sys.modules)
    try:
        return import_module(name)
    except BaseException:
        _take_out(sys.modules.keys() - before)
        raise


def _take_out(new: Iterable[str]) -> None:
    left = set(new)
    while half_made := {name for name in left if _is_half_made(name)}:
        for name in half_made:
            taken_out = sys.modules.pop(name, None)
            package, _, own = name.rpartition(".")
            holder = sys.modules.get(package)
            if holder is not None and taken_out is not None and vars(holder).get(own) is taken_out:
                delattr(holder, own)  # the package must not refer to a module that was removed
        left -= half_made


def _is_half_made(name: str) -> bool:
    package = name.rpartition(".")[0]
    if package and package not in sys.modules:
        return True
    names = vars(sys.modules[name]) if isinstance(sys.modules.get(name), ModuleType) else {}
    top = name.partition(".")[0]
    return any(_home(value, top) not in sys.modules for value in list(names.values()))


def _home(value: Any, top: str) -> str:
    """Return the name of a value's module if it is in the package ``top``; otherwise ``sys``."""
    if isinstance(value, ModuleType):
        home = vars(value).get("__name__")
    elif isinstance(value, type | FunctionType):
        home = value.__module__
    else:
        return "sys"
    return home if isinstance(home, str) and home.partition(".")[0] == top else "sys"
