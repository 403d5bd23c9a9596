"""The types of settings: lists, class paths, spans of time and counts, each with its limits."""

from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from sensorpool.errors import Refused
from sensorpool.model.budgets import Budget, read_budgets
from sensorpool.model.identity import canonical_classpath
from sensorpool.model.patterns import canonical_entry
from sensorpool.model.values import LONGEST_SPAN


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


def _enabled(value: object) -> object:
    if isinstance(value, str) and not _split(value):
        raise ValueError("names no class: leave it out for the built-in sensors, or list what may be poked")
    return _spelled(value, canonical_entry)


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
