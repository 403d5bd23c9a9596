"""What a constructor takes from elsewhere than its arguments: a Variable, today's date, the environment, a file.

The arguments do not tell such sensors apart. So what is built and is no argument is told in a poke_context as well: a
digest for each attribute, under the name of an argument that every operator takes and no poke reads. So is what a
class shares with others of its process (`shared`), a module's constant for example. Thus it is part of the identity.
The pool, whose process may find what is not there on the worker, compares (`another`); so something is told even if
there is nothing. The order of mappings is told there as well (`order`), and what the first poke looked up and did not
find (`missing`).

Nothing is told of sensors of the providers that were read, and of classes that say themselves by
``poke_context_fields`` what their answer depends on.
"""

import datetime as dt
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from airflow.sdk.bases.operator import BaseOperator

from sensorpool.airflow import compat, missing
from sensorpool.airflow.codec import encode
from sensorpool.airflow.proof import inner, known_sensors, order, shared

NAME = "doc"
_DEEPEST = 4
_PRIVATE = re.compile(r"^(_\w+?__|_+)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_OF_NO_COMPANY = frozenset({"abc", "airflow", "builtins", "typing"})
_CONSTANTS = (str, int, float, dt.date, dt.time, dt.timedelta, PurePath)


def elsewhere(operator: BaseOperator, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what to add to the arguments of an operator that was built from them, encoded.

    :param operator: as it was built: nothing else has changed it.
    """
    words = [*_its_own(operator, arguments), *_words(_shared(type(operator)))]
    return {} if not words and known_sensors.vouches_for_itself(type(operator)) else {NAME: " ".join(words)}


def again(operator: BaseOperator, poke_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a poke_context with what its class shares as it is now: its poke may have imported more."""
    before, told = poke_context.get(NAME), _shared(type(operator))
    if before is None or not told:
        return dict(poke_context)
    words = [word for word in str(before).split() if not _is_shared(word)]
    return {**poke_context, NAME: " ".join([*words, *_words(told)])}


def ordered(poke_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a poke_context with its mappings in the order that is told in it.

    :raises ValueError: when that cannot be: it was said of another one.
    """
    return order.put_back(poke_context, str(poke_context.get(NAME, "")))


def another(operator: BaseOperator, poke_context: Mapping[str, Any]) -> str | None:
    """Name an attribute in which an operator differs from the one that was registered."""
    told = poke_context.get(NAME)
    if told is None:  # the version before tells nothing
        return None
    arguments = {name: value for name, value in ordered(poke_context).items() if name != NAME}
    words = str(told).split()
    differing = {word for word in words if not _is_more(word)} ^ set(_its_own(operator, arguments))
    return min(differing).partition("=")[0] if differing else None


def with_missing(
    poke_context: Mapping[str, Any], names: Collection[str] | None, of_environment: Collection[str] = ()
) -> dict[str, Any]:
    """Return a poke_context that tells as well which Connections and Variables its first poke did not find.

    :param names: None, if none was looked for.
    :param of_environment: those that it found in the environment.
    """
    told = (str(poke_context.get(NAME, "")), missing.word_of(names), missing.word_of_environment(of_environment))
    words = " ".join(filter(None, told))
    return {**poke_context, NAME: words} if words else dict(poke_context)


def may_miss(poke_context: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the Connections and Variables that a poke may do without (`missing`)."""
    return missing.read(str(poke_context.get(NAME, "")))


def of_environment(poke_context: Mapping[str, Any]) -> frozenset[str]:
    """Return the Connections and Variables that were in the environment of its worker (`missing`)."""
    return missing.read_environment(str(poke_context.get(NAME, "")))


def shares_another(cls: type, poke_context: Mapping[str, Any]) -> str | None:
    """Name what a class shares here that is another one than where it was registered."""
    pairs = (word.partition("=") for word in str(poke_context.get(NAME, "")).split() if _is_shared(word))
    return shared.differing(cls, {name: told for name, _, told in pairs})


def _its_own(operator: BaseOperator, arguments: Mapping[str, Any]) -> list[str]:
    in_order = order.of(arguments) if known_sensors.needs_order(type(operator)) else ""
    found = [in_order] if in_order else []
    if known_sensors.vouches_for_itself(type(operator)):
        return found
    digests = {
        name: digest(said(value))
        for name, value in attributes(operator).items()
        if value is not None and not _is_argument(name, value, arguments)
    }
    return found + _words(digests)


def _words(digests: Mapping[str, str]) -> list[str]:
    return [f"{name}={digests[name]}" for name in sorted(digests)]


def _is_more(word: str) -> bool:
    """Whether a word tells what is not of the operator itself."""
    return _is_shared(word) or missing.is_word(word)


def _is_shared(word: str) -> bool:
    return shared.is_told(word.partition("=")[0])


def _shared(cls: type) -> dict[str, str]:
    return shared.told(cls, {name for name, _ in constants(cls)})


def attributes(operator: BaseOperator) -> dict[str, Any]:
    """Return the attributes of an operator that not every sensor has, and the constants of a company's class."""
    return {**dict(constants(type(operator))), **compat.own_attributes(operator)}


def _is_argument(name: str, value: Any, arguments: Mapping[str, Any]) -> bool:
    told = _PRIVATE.sub("", name)
    try:
        return told in arguments and json.dumps(arguments[told]) == json.dumps(encode(value))
    except Exception:  # JSON cannot say it, or it is of an odd class
        return False


def constants(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield what a company's class says of all its sensors: a process that has imported older code says otherwise."""
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in _OF_NO_COMPANY:
            for name, value in vars(base).items():
                if isinstance(value, _CONSTANTS) and not name.startswith("__") and name not in compat.base_attributes():
                    yield name, value


def digest(said: Any) -> str:
    """Return a digest of what was said of a value."""
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:24]


def said(value: Any, depth: int = _DEEPEST) -> Any:
    """Say a value as JSON that is the same in each process; for one of which little can be said, its type."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    match value:
        case dict():
            return [kind, [[said(name, depth), said(item, depth)] for name, item in value.items()]]
        case list() | tuple():
            return [kind, [said(item, depth) for item in value]]
        case set() | frozenset():
            return [kind, sorted((said(item, depth) for item in value), key=json.dumps)]
    with suppress(Exception):  # JSON cannot say it, or it is of an odd class
        return [kind, encode(value)]
    if is_logger(value):
        return kind
    if inspect.isroutine(value) or inspect.isclass(value):
        return [kind, f"{value.__module__}.{value.__qualname__}"]
    made_of, held = compat.made_of(value), _held(value)
    if depth and held is not None:
        return [kind, said(held, depth - 1), said(made_of or {}, depth - 1)]
    if depth and made_of is not None:
        return [kind, {name: said(made_of[name], depth - 1) for name in sorted(made_of)}]
    return [kind, _ADDRESS.sub("", repr(value))]


def _held(value: Any) -> Any:
    try:
        return inner.of(value)
    except inner.Untold:
        return None


def is_logger(value: Any) -> bool:
    """Whether a value is a logger: nothing is told of those."""
    return isinstance(value, logging.Logger) or type(value).__module__.partition(".")[0] == "structlog"
