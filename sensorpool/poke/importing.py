"""Imports that may be tried again: what a failed one leaves half made in this process is taken out with it."""

import sys
from collections.abc import Iterable
from importlib import import_module, invalidate_caches
from types import FunctionType, ModuleType
from typing import Any


def import_anew(name: str) -> ModuleType:
    """Import a module; a failure leaves nothing behind that would spoil the next attempt.

    Python takes a module out of ``sys.modules`` whose import failed, and leaves there what that import had imported
    before. Those of these that belong to a package that is not there, or hold on to a module that is not, would be
    found half made by the next attempt. So they go as well, and are made anew.

    :raises BaseException: whatever the module raises.
    """
    invalidate_caches()  # the file may have come since the last look into its folder
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
                delattr(holder, own)  # or the package would seem to hold on to what is not there
        left -= half_made


def _is_half_made(name: str) -> bool:
    package = name.rpartition(".")[0]
    if package and package not in sys.modules:
        return True
    found = vars(sys.modules[name]) if isinstance(sys.modules.get(name), ModuleType) else {}
    top = name.partition(".")[0]
    return any(_home(value, top) not in sys.modules for value in list(found.values()))


def _home(value: Any, top: str) -> str:
    """Name the module, of the package ``top``, that something comes from; ``sys`` if it comes from elsewhere."""
    if isinstance(value, ModuleType):
        home = vars(value).get("__name__")
    elif isinstance(value, type | FunctionType):
        home = value.__module__
    else:
        return "sys"
    return home if isinstance(home, str) and home.partition(".")[0] == top else "sys"
