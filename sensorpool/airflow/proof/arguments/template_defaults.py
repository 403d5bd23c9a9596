"""Template fields whose default is a template: a task that does not give the argument has it rendered all the same."""

from collections.abc import Mapping
from functools import lru_cache
from inspect import signature
from typing import Any

_DEEPEST = 24


def defaults_of(sensor: Any) -> dict[str, Any]:
    """Return those defaults of a sensor's template fields that are templates, by the names of their arguments."""
    cls: Any = type(sensor)
    return dict(_defaults_of(cls, tuple(sensor.template_fields or ())))


@lru_cache(1_000)
def _defaults_of(cls: Any, fields: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = signature(base.__init__).parameters
            for name in parameters.keys() & set(fields) - found.keys():
                found[name] = parameters[name].default
    return tuple((name, found[name]) for name in fields if name in found and holds_template(found[name]))


def holds_template(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether rendering may change a value of a template field."""
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    return (
        depth > 0
        and isinstance(value, list | tuple | set | frozenset)
        and any(holds_template(part, depth - 1) for part in value)
    )


def is_template(text: str) -> bool:
    """Whether rendering may change a text: jinja also takes one newline from its end."""
    return any(sign in text for sign in ("{{", "{%", "{#")) or text.endswith(("\n", "\r")) or "\r" in text
