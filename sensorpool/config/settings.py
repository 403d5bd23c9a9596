"""The settings: one frozen object, read from ``SENSORPOOL_*``; impossible combinations are refused at start."""

import json
import os

from pydantic import ValidationError, model_validator

from sensorpool.config import extensions, refusals
from sensorpool.config.combinations import URLS, impossible
from sensorpool.config.defaults import PREFIX
from sensorpool.config.options import Options
from sensorpool.errors import SettingsError
from sensorpool.instrumentation.redaction import hide_password, learn
from sensorpool.model.budgets import as_text

SECRETS = ("web_token", "wake_token")
EXTENSIONS = "sensorpool.settings"  # entry points: functions that return settings by name


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
            overrides = {name: value for name, value in given.items() if not _is_in_environment(name)} | overrides
        try:
            return cls(**overrides)  # type: ignore[arg-type]  # pydantic checks them
        except ValidationError as error:
            raise SettingsError("\n".join(refusals.line(item, cls.model_fields) for item in error.errors())) from None

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


def _is_in_environment(name: str) -> bool:
    return bool(os.environ.get(f"{PREFIX}{name.upper()}"))
