"""Settings that all processes of a pool have to agree on, as texts to compare: a worker reads them when it starts.

Not among them are the terms, ticks and queues, which the roster compares by itself, what may differ from host
to host, such as the number of threads, and secrets.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sensorpool.config import extensions
from sensorpool.config.settings import EXTENSIONS, Settings
from sensorpool.errors import SettingsError

NAMES = (
    *("sensors_enabled", "infra_failures", "infra_failure_window", "poke_timeout", "adaptive", "lease_ttl"),
    *("crash_limit", "overrun_limit", "rescue_interval", "retention", "landing_retention"),
    *("on_settled_tasks", "on_settled_queue"),
)


def shared(settings: Settings) -> dict[str, Any]:
    """Return the settings to compare, as values of JSON, by name."""
    found: dict[str, Any] = {name: getattr(settings, name) for name in NAMES}
    found["budgets"] = [f"{budget.pattern}: {budget}" for budget in settings.budgets]
    for extension in extensions.load(EXTENSIONS).values():
        if (names := getattr(extension, "shared", ())) and extension():
            with suppress(SettingsError):  # a wrong setting of Airflow's side is no reason for a worker not to start
                own = extension.own()
                found |= {name: getattr(own, name) for name in names}
    values: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return values


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting that both have, with different values."""
    return [
        f"{name.upper()} is {_difference(value, there[name])}"
        for name, value in here.items()
        if name in there and there[name] != value
    ]


def _difference(here: object, there: object) -> str:
    """Return in words in what two values of a setting differ."""
    if not (isinstance(here, list) and isinstance(there, list)):
        return f"{here} here and {there} there"
    more, less = ([str(each) for each in one if each not in other] for one, other in ((here, there), (there, here)))
    said = [f"{', '.join(names)} only {where}" for names, where in ((more, "here"), (less, "there")) if names]
    return "; ".join(said) or "in another order there"
