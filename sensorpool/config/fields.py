"""The types of settings: lists, class paths, spans of time and counts, each with its limits."""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from sensorpool.errors import ClassRefused, Refused
from sensorpool.model.budgets import Budget, read_budgets
from sensorpool.model.identity import MAX_CLASSPATH_LENGTH, canonical_classpath
from sensorpool.model.values import LONGEST_SPAN

_PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.\*", re.ASCII)
_ANY = "*?["  # what elsewhere stands for any letters


def _split(value: object) -> object:
    """Read ``a, b`` as a list, as Airflow's configuration does."""
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return value


def _classpaths(value: object) -> object:
    return _spelled(value, canonical_classpath)


def _spelled(value: object, canonical: Callable[[object], str]) -> object:
    entries = _split(value)
    try:
        return tuple(canonical(entry) for entry in entries) if isinstance(entries, tuple | list) else entries
    except Refused as error:
        raise ValueError(str(error)) from None


def _entry(entry: object) -> str:
    """Return the one spelling of an entry of the allowlist, a class path or a pattern.

    :raises ClassRefused: when it is neither.
    """
    if not isinstance(entry, str) or not any(letter in entry for letter in _ANY):
        return canonical_classpath(entry)
    spelled = entry.strip().replace(":", ".", 1)
    if not spelled.strip("*."):
        raise ClassRefused(
            f"{ascii(entry)[:80]} would enable every class: name a package in front, as in 'mycompany.sensors.*'"
        )
    if not _PATTERN.fullmatch(spelled) or len(spelled) > MAX_CLASSPATH_LENGTH:
        raise ClassRefused(
            f"{ascii(entry)[:80]} is no pattern: write it as 'mycompany.sensors.*', a package with one .* at its end"
        )
    return spelled


def _enabled(value: object) -> object:
    if isinstance(value, str) and not _split(value):
        raise ValueError("names no class: leave it out for the built-in sensors, or list what may be poked")
    return _spelled(value, _entry)


def _budgets(value: object) -> object:
    return () if value == "" else read_budgets(value)


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
ClassPaths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_classpaths)]
Enabled = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_enabled)]
BudgetsOfBackends = Annotated[tuple[Budget, ...], NoDecode, BeforeValidator(_budgets)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_SPAN, allow_inf_nan=False)]
# spans between repeated actions: with shorter ones the process would do nothing else
Moments = Annotated[float, Field(ge=0.05, le=LONGEST_SPAN, allow_inf_nan=False)]
WholeSeconds = Annotated[float, Field(ge=1, le=LONGEST_SPAN, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
