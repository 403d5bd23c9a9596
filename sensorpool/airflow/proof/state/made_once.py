"""Objects that are made once, to ask a backend: hooks, clients, sessions, connections, engines and loggers.

A sensor's own are no state of it. Those of a class or a module are state that all sensors of a process share: which
object it is, its plain attributes, and the mappings that a library keeps in it, such as headers and cookies.
"""

import logging
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from http.cookiejar import CookieJar
from typing import Any

from airflow.sdk import BaseHook

_LOGGER = r"(?i:logger)s?$|(^|_)(?i:log)$|[a-z]Log$"
_IS_LOGGER = re.compile(_LOGGER)
_IS_CLIENT = re.compile(rf"(?i:client|hook|session|conn|connection|engine|channel|stub|poolmanager)s?$|{_LOGGER}")
# modules of the standard library whose objects are clients, without a word for that in their class
_CLIENT_MODULES = frozenset(
    {"asyncio", "concurrent", "ftplib", "http", "imaplib", "multiprocessing", "poplib", "smtplib", "socket"}
    | {"sqlite3", "ssl", "subprocess", "unittest", "urllib", "xmlrpc"}
)
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})
_DATA = frozenset({type(None), bool, int, float, str, bytes, *_CONTAINERS})
# what a library's client works out at its first call, for all calls alike
_MEMOS = {"botocore": ("_cache", "_exceptions"), "google": ("_http_internal",)}


class Same:
    """An object, equal to itself alone. It is kept, so that no later object has its id."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def is_made_once(name: str, kind: Any) -> bool:
    """Whether a value of this name and class is made once."""
    if kind.__module__ == "builtins":
        return False
    if issubclass(kind, (BaseHook, logging.Logger, logging.LoggerAdapter)) or _is_named(_IS_CLIENT, kind):
        return True
    return _IS_CLIENT.search(name) is not None and (_package_of(kind) in _CLIENT_MODULES or not is_of_python(kind))


def is_logger(name: str, kind: Any, is_ours: Callable[[str], bool]) -> bool:
    """Whether what is made once only writes a log; a company's class does by its bases, not by its name."""
    if issubclass(kind, (logging.Logger, logging.LoggerAdapter)):
        return True
    return not is_ours(kind.__module__) and (_is_named(_IS_LOGGER, kind) or _IS_LOGGER.search(name) is not None)


def parts_of(kind: Any, attributes: Mapping[str, Any], is_ours: Callable[[str], bool]) -> dict[str, Any]:
    """Return the state of a client that decides what it asks: plain values, and which objects it has.

    What a library's objects hold is theirs (the connections of a pool), save for mappings. Enums of a library's client
    say how far it has come.

    :param is_ours: whether a class of a module is a company's: of its client all attributes count.
    """
    if is_ours(kind.__module__):
        return dict(attributes)
    memos = _MEMOS.get(_package_of(kind), ())
    return {
        name: inside(part)
        for name, part in attributes.items()
        if name not in memos and not issubclass(type(part), Enum)
    }


def inside(value: Any) -> Any:
    """Return what is captured of a library's object: itself, and the containers that a mapping holds."""
    kind = type(value)
    if kind in _DATA:
        return value
    if issubclass(kind, dict):
        return {name: part if type(part) in _DATA else Same(part) for name, part in dict.items(value)}
    if issubclass(kind, (Mapping, CookieJar)):
        held = object.__getattribute__(value, "__dict__").items()
        parts = ((name, _of_mapping(part)) for name, part in held)
        return [Same(value), {name: part for name, part in parts if part is not None}]
    return Same(value)


def _of_mapping(part: Any) -> Any:
    """Return a part of a mapping, without what it has an object for: the connections to each host."""
    kind = type(part)
    if issubclass(kind, CookieJar):
        return inside(part)
    if issubclass(kind, dict):
        return {name: inner for name, inner in dict.items(part) if type(inner) in _DATA}
    return part if kind in _CONTAINERS else None  # the time of the last request, locks


@cache
def is_of_python(kind: Any) -> bool:
    """Whether a class is one of the standard library."""
    return _package_of(kind) in sys.stdlib_module_names


def _package_of(kind: Any) -> str:
    return str(kind.__module__).partition(".")[0]


@cache
def _is_named(names: re.Pattern[str], kind: Any) -> bool:
    return any(names.search(base.__name__) for base in kind.__mro__)
