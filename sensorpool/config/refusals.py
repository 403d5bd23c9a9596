"""One-line errors of settings: the variable, the values that it takes, and its present value."""

from collections.abc import Callable, Mapping

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from sensorpool.config.defaults import PREFIX

_NO_NUMBER = {
    *("float_parsing", "float_type", "finite_number", "int_parsing", "int_type", "int_from_float", "int_parsing_size"),
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
}  # pydantic's errors


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def line(item: ErrorDetails, fields: Mapping[str, FieldInfo], name_of: Callable[[str], str] = variable) -> str:
    """Return one pydantic error as one line (or, for combinations, the lines of the broken rules).

    :param fields: all settings by name.
    :param name_of: returns what a setting is called where it is set.
    """
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return "\n".join(f"{PREFIX}{line}" for line in message.splitlines())
    name = name_of(str(item["loc"][0]))
    message = _number(fields[str(item["loc"][0])]) if item["type"] in _NO_NUMBER else message
    if item["type"] == "extra_forbidden":
        return f"{name}: there is no such setting"
    shown = "" if "url" in name.lower() else f" (it is {str(item.get('input'))[:80]!r})"
    return f"{name}: {message[0].lower()}{message[1:]}{shown}"


def _number(field: FieldInfo) -> str:
    """Return which numbers a setting takes."""

    def limits(kind: str) -> list[float]:
        return [getattr(each, kind) for each in field.metadata if hasattr(each, kind)]

    least = f"from {max(limits('ge')):.12g}" if limits("ge") else "above 0"
    most = min([*limits("le"), *(limit - 1 for limit in limits("lt"))])
    what = "a number of seconds, without a unit" if field.annotation is float else "a whole number"
    return f"must be {what}, {least} to {most:.12g}"
