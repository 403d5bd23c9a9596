"""The settings: one frozen object, read from ``SENSORPOOL_*``. Impossible combinations are refused at start."""

import json
import os
from collections.abc import Callable, Mapping

from pydantic import ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from sensorpool.config import extensions
from sensorpool.config.combinations import URLS, impossible
from sensorpool.config.defaults import PREFIX
from sensorpool.config.options import Options
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import hide_password, learn
from sensorpool.model.budgets import as_text

SECRETS = ("web_token", "wake_token")
EXTENSIONS = "sensorpool.settings"  # entry points: functions that return settings by name
_NO_NUMBER = {
    *("float_parsing", "float_type", "finite_number", "int_parsing", "int_type", "int_from_float", "int_parsing_size"),
    *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
}  # pydantic's errors


class Settings(Options):
    """All settings of sensorpool. Times are seconds.

    :raises SettingsError: by `Settings.load`, with one line for each thing that is wrong.
    """

    @classmethod
    def load(cls, **overrides: object) -> "Settings":
        """Read the settings. ``overrides`` win over the environment, and that over Airflow's ``[sensorpool]`` section.

        :raises SettingsError: with one line for each thing that is wrong.
        """
        for extension in extensions.load(EXTENSIONS).values():
            given = {name: value for name, value in extension().items() if name in cls.model_fields}
            overrides = {name: value for name, value in given.items() if not os.environ.get(variable(name))} | overrides
        try:
            return cls(**overrides)  # type: ignore[arg-type]  # pydantic checks them
        except ValidationError as error:
            raise SettingsError("\n".join(refusal_of(item, cls.model_fields) for item in error.errors())) from None

    @model_validator(mode="after")
    def _check_combinations(self) -> "Settings":
        if problems := impossible(self):
            raise ValueError("\n".join(problems))
        for name in URLS:
            learn(str(getattr(self, name)))
        for name in SECRETS:  # chat services have a secret in the path of their address
            learn(json.dumps({"token": getattr(self, name)}))
        return self

    def shown(self) -> dict[str, object]:
        """Return the effective settings with the secrets in URLs hidden, for people and logs."""
        values: dict[str, object] = dict(self)
        for name in URLS:
            values[name] = hide_password(str(values[name]))
        for name in SECRETS:
            values[name] = "***" if values[name] else ""
        values["budgets"] = as_text(self.budgets)
        return values


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def refusal_of(item: ErrorDetails, fields: Mapping[str, FieldInfo], name_of: Callable[[str], str] = variable) -> str:
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
