"""The metadata that Airflow reads of a provider package: its name, and its section of the configuration."""

from typing import Any

from sensorpool.config import __version__


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata: the entry point ``apache_airflow_provider``."""
    from sensorpool.airflow.configuration import AIRFLOW_SENSORS, SCHEMA, SECTION, AirflowSettings
    from sensorpool.config.defaults import BUILT_IN_SENSORS
    from sensorpool.config.settings import SECRETS, Settings

    defaults = {
        "sensors_enabled": ",".join(BUILT_IN_SENSORS + AIRFLOW_SENSORS),
        "database_schema": SCHEMA,
        "database_url": None,
        "redis_url": None,
    }
    options = {
        name: _option(name, field, defaults) | {"sensitive": name.endswith("_url") or name in SECRETS}
        for settings in (AirflowSettings, Settings)
        for name, field in settings.model_fields.items()
    }
    return {
        "package-name": "sensorpool",
        "name": "sensorpool",
        "description": "Takes sensors off Airflow's worker slots: a small pool of Celery workers pokes for all.",
        "versions": [__version__],
        "config": {
            SECTION: {
                "description": "Sensors leave their worker slots. `SENSORPOOL_NAME` wins over an option here.",
                "options": options,
            }
        },
    }


def _option(name: str, field: Any, defaults: dict[str, str | None]) -> dict[str, Any]:
    default = defaults.get(name, None if name in defaults else field.default)
    if isinstance(default, tuple):
        default = ",".join(default)
    kinds = {bool: "boolean", int: "integer", float: "float"}
    return {
        "description": f"{field.description}\n",
        "version_added": "0.1.0",
        "type": kinds.get(type(default), "string"),
        "example": None,
        "default": None if default in (None, "") else str(default),
    }
