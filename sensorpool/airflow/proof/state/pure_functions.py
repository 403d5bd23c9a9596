"""Pure functions: the result follows from arguments and constants alone, so a cache of results holds nothing else.

The names in the code decide: data, constants of the module, pure functions of the standard library, and other pure
functions. The constants are compared as all data that a class references (`references`).
"""

import base64
import builtins
import datetime as dt
import dis
import hashlib
import json
import math
import posixpath
import re
import string
import textwrap
import types
import urllib.parse
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePath, PurePosixPath
from typing import Any

from sensorpool.airflow.proof.state.code_names import names_in

_DATA_METHODS = frozenset(dir(str)) | frozenset(dir(dict)) | frozenset(dir(list)) | frozenset(dir(set))
_PURE = frozenset(
    {"str", "int", "float", "bool", "len", "sorted", "sum", "min", "max", "range", "zip", "enumerate", "tuple", "list"}
    | {"dict", "set", "frozenset", "round", "abs", "any", "all", "isinstance", "ValueError", "KeyError", "TypeError"}
)
_MODULES = {each.__name__: each for each in (base64, hashlib, json, math, re, string, textwrap, urllib.parse)}
_PATHS = frozenset({"path", "join", "basename", "dirname", "split", "splitext", "normpath", "isabs", "commonprefix"})
_OF_DATETIME = frozenset({"date", "datetime", "time", "timedelta", "timezone", "UTC"})
_OF_PATTERNS = frozenset(dir(re.Pattern)) | frozenset(dir(re.Match))
_CLASSES = (dt.date, dt.datetime, dt.timedelta, Decimal, Fraction, PurePath, PurePosixPath)
_OF_CLASSES = frozenset(
    {"strptime", "fromisoformat", "isoformat", "days", "seconds", "year", "month", "day", "total_seconds", "weekday"}
    | {"parent", "name", "stem", "suffix", "parts", "as_posix", "quantize"}
)
_CONSTANTS = (str, bytes, int, float, bool, type(None))
_CONTAINERS = (dict, list, tuple, set, frozenset)
_MOST = 1_000
_DEEPEST = 4


def is_pure(function: Any, depth: int = _DEEPEST) -> bool:
    """Whether a function's result follows from its arguments and constants alone, judged by its code."""
    if type(function) is not types.FunctionType or function.__closure__ or depth < 0:
        return False
    names, own = names_in(function.__code__), function.__globals__
    if names.imported:
        return False
    known: set[str] = set()
    for name in names.of_module:
        allowed = _names_by(name, own.get(name, _BUILT_IN), function.__code__, depth)
        if allowed is None:
            return False
        known |= allowed | {name}
    return names.attributes <= known | _DATA_METHODS | _OF_CLASSES


_BUILT_IN = object()


def _names_by(name: str, value: Any, code: types.CodeType, depth: int) -> frozenset[str] | None:
    """Return the attributes that code may read of a global; None if the global is not known to be pure."""
    none = frozenset[str]()
    if value is _BUILT_IN:
        return none if name in _PURE and hasattr(builtins, name) else None
    if isinstance(value, types.ModuleType):
        if value is posixpath or (value.__name__ == "os" and _asks_for_paths_only(code, name)):
            return _PATHS
        if value is dt:
            return _OF_DATETIME
        if _MODULES.get(value.__name__) is not value:
            return None
        return frozenset(dir(value)) | (_OF_PATTERNS if value is re else none)
    if type(value) is re.Pattern:
        return _OF_PATTERNS
    if any(value is each for each in _CLASSES):
        return none
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        module = str(value.__module__)
        of_paths = module == posixpath.__name__ and value.__name__ in _PATHS
        return none if module.partition(".")[0] in _PACKAGES or of_paths or is_pure(value, depth - 1) else None
    if type(value) is type(_asks_for_paths_only):  # a cache of another function
        return none if is_pure(value.__wrapped__, depth - 1) else None
    return none if _parts(value, _MOST) > 0 else None


_PACKAGES = frozenset(_MODULES) - {"urllib.parse"} | {"urllib"}


def _parts(value: Any, left: int) -> int:
    """Return a number of parts less those of a value; 0 or less if the value is not plain, or has too many."""
    if type(value) in _CONTAINERS:
        if len(value) >= left:
            return 0
        for item in (*value, *value.values()) if type(value) is dict else value:
            left = _parts(item, left)
            if left <= 0:
                return 0
        return left - 1
    return left - 1 if type(value) in _CONSTANTS else 0


@lru_cache(256)
def _asks_for_paths_only(code: types.CodeType, name: str) -> bool:
    """Whether code reads only the ``path`` of a module: other names of `os` are also names of methods of data."""
    codes = [code, *(constant for constant in code.co_consts if isinstance(constant, types.CodeType))]
    if any(isinstance(inner, types.CodeType) for each in codes[1:] for inner in each.co_consts):
        return False
    return all(
        then.argval == "path"
        for each in codes
        for first, then in pairwise(dis.get_instructions(each))
        if first.opname == "LOAD_GLOBAL" and first.argval == name
    )
