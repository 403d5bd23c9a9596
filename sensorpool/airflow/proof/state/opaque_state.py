"""State that an object holds in C, and that no attribute shows: the items of an array, the seed of a generator.

Arrays and buffers are read, and of other objects what `pickle` reads. State that cannot be read (the position of a
generator or in a file) is `Unreadable`. Sockets and TLS objects hold no answer of a poke: nothing is read of them.
"""

import datetime as dt
import io
import itertools
import random
import re
import struct
import sys
import threading
from array import array
from collections import deque
from decimal import Decimal
from enum import Enum
from functools import cache
from itertools import islice
from pathlib import PurePath
from types import MappingProxyType, MemberDescriptorType
from typing import Any

_MOST = 2**20  # bytes
_MOST_ITEMS = 10_000
_POINTER = struct.calcsize("P")
_WHOLLY_VISIBLE = (  # in their items, attributes or text
    *(type, str, bytes, bytearray, int, float, complex, range, slice, dict, list, tuple, set, frozenset, deque),
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo, PurePath, Decimal, Enum, re.Pattern, threading.local),
)
_NO_ANSWERS = frozenset({"_socket", "_ssl", "select", "weakref", "functools", "_contextvars", "_asyncio"})
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())


class Unreadable(Exception):
    """The state of an object cannot be read, or is too large to compare."""


def read(value: Any) -> Any:
    """Return the state of a value beside its attributes and items; None if there is none.

    :raises Unreadable: when it cannot be read, or is too large.
    """
    kind: Any = type(value)
    try:
        packages = _in_c(kind)
    except TypeError:  # a metaclass that forbids to hash its classes: the class is written in Python
        return None
    if not packages:
        return None
    try:
        return _held(value, kind)
    except Unreadable:
        raise
    except Exception as error:
        if packages.isdisjoint(sys.stdlib_module_names):
            return None  # a library's client of a backend
        raise Unreadable from error


@cache
def _in_c(kind: Any) -> frozenset[str]:
    """Return the packages of an object's classes that are larger than their attributes need."""
    packages = frozenset(str(base.__module__).partition(".")[0] for base in kind.__mro__ if _is_larger(base))
    return frozenset() if issubclass(kind, _WHOLLY_VISIBLE) or packages & _NO_ANSWERS else packages


def _is_larger(kind: Any) -> bool:
    slots = sum(
        type(member) is MemberDescriptorType
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for member in vars(base).values()
    )
    pointers = slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return bool(kind.__basicsize__ > object.__basicsize__ + pointers * _POINTER or kind.__itemsize__ > 0)


def _held(value: Any, kind: Any) -> Any:
    if issubclass(kind, _LOCK):
        return value.locked()
    if issubclass(kind, (_RLOCK, random.SystemRandom)):
        return ""
    if issubclass(kind, MappingProxyType):
        return dict(value)
    if issubclass(kind, itertools.count | itertools.repeat):
        return repr(value)
    if issubclass(kind, struct.Struct):
        return value.format
    if issubclass(kind, random.Random):
        version, numbers, following = random.Random.getstate(value)
        return version, array("L", numbers).tobytes(), following
    if sys.getsizeof(value) > _MOST:
        raise Unreadable
    if issubclass(kind, io.StringIO | io.BytesIO):
        return None if value.closed else (value.getvalue(), value.tell())
    if callable(getattr(kind, "digest", None)):  # of hashlib
        return value.digest()
    try:
        with memoryview(value) as seen:
            if seen.nbytes > _MOST:
                raise Unreadable
            if "O" not in seen.format:  # such items are addresses
                return seen.format, seen.shape, seen.tobytes()
    except (TypeError, ValueError, NotImplementedError):
        pass
    if kind.__module__ == "itertools":  # Python no longer pickles these
        raise Unreadable
    found = value.__reduce_ex__(2)
    if isinstance(found, str):
        return found
    arguments, state, items, pairs = (*found[1:5], None, None, None, None)[:4]
    if state is getattr(value, "__dict__", None):
        state = None  # these are its attributes
    return arguments, state, *(list(islice(parts or (), _MOST_ITEMS)) for parts in (items, pairs))
