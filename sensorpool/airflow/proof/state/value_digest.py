"""Digests of values: the same in each process that has the same value."""

import hashlib
import inspect
import json
import logging
import re
from contextlib import suppress
from typing import Any

from sensorpool.airflow.compat import operators
from sensorpool.airflow.proof.codec import encode
from sensorpool.airflow.proof.state import opaque_state
from sensorpool.airflow.proof.state.opaque_state import Unreadable

_DEEPEST = 4
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(text: Any) -> str:
    """Return a digest of the `canonical_json` of a value."""
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:24]


def canonical_json(value: Any, depth: int = _DEEPEST) -> Any:
    """Return a value as JSON that is the same in each process; the type alone, for a value without a state to read."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    match value:
        case dict():
            return [kind, [[canonical_json(name, depth), canonical_json(item, depth)] for name, item in value.items()]]
        case list() | tuple():
            return [kind, [canonical_json(item, depth) for item in value]]
        case set() | frozenset():
            return [kind, sorted((canonical_json(item, depth) for item in value), key=json.dumps)]
    with suppress(Exception):  # no JSON can hold it, or its class is odd
        return [kind, encode(value)]
    if is_logger(value):
        return kind
    if inspect.isroutine(value) or inspect.isclass(value):
        return [kind, f"{value.__module__}.{value.__qualname__}"]
    parts, held = operators.object_attributes(value), _held(value)
    if depth and held is not None:
        return [kind, canonical_json(held, depth - 1), canonical_json(parts or {}, depth - 1)]
    if depth and parts is not None:
        return [kind, {name: canonical_json(parts[name], depth - 1) for name in sorted(parts)}]
    return [kind, _ADDRESS.sub("", repr(value))]


def _held(value: Any) -> Any:
    try:
        return opaque_state.read(value)
    except Unreadable:
        return None


def is_logger(value: Any) -> bool:
    """Whether a value is a logger: those have no state that counts."""
    return isinstance(value, logging.Logger) or type(value).__module__.partition(".")[0] == "structlog"
