"""The allowlist of callables: which functions a poke_context may name, asked before anything is imported."""

import re
import sys
from collections.abc import Collection
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

LONGEST = 500  # characters of a name
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_ALL = ".*"  # ends an entry that stands for all functions of a package
_TOO_MUCH = frozenset({"airflow", "airflow.providers", "sensorpool"})  # packages that no entry may open as a whole


def is_name(name: object) -> bool:
    """Whether a value is the name of a function in a module: ``mycompany.checks.ready``."""
    return isinstance(name, str) and len(name) <= LONGEST and _NAME.fullmatch(name) is not None


def is_pythons(name: str) -> bool:
    """Whether a name is one of Python itself: no entry may list it."""
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def lists(enabled: Collection[str], name: str) -> bool:
    """Whether entries list a name, by itself or by the package that it is in."""
    return name in enabled or any(
        entry.endswith(_ALL) and name.startswith(entry.removesuffix("*")) for entry in enabled
    )


def _checked(value: object) -> object:
    entries = tuple(item.strip() for item in value.split(",") if item.strip()) if isinstance(value, str) else value
    if isinstance(entries, tuple | list):
        for entry in entries:
            if (why := _why_refused(entry)) is not None:
                raise ValueError(f"{ascii(entry)[:80]} {why}")
    return tuple(entries) if isinstance(entries, list) else entries


def _why_refused(entry: object) -> str | None:
    if not isinstance(entry, str):
        return "is no text: write names like mycompany.checks.ready"
    package = entry.removesuffix(_ALL)
    is_package = package != entry and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", package, re.ASCII)
    if not (is_package or is_name(entry)):
        return "names no function: write mycompany.checks.ready, or mycompany.checks.* for all of a package"
    if len(entry) > LONGEST:
        return f"has more than {LONGEST} characters"
    if is_pythons(entry):
        return "is of Python itself, which may not be called from a row: name functions of your own"
    if package in _TOO_MUCH and package != entry:
        return "lists a whole package that is not yours: name functions, or a package of your own"
    return None


Callables = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_checked)]
