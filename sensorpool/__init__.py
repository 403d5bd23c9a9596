"""sensorpool takes sensors off worker slots: register what you wait for, and be told when it lands.

The import of this package is cheap: its names are loaded at their first use (PEP 562), but for the errors.
``sensorpool.app`` is the Celery application, so that ``celery -A sensorpool worker`` finds it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sensorpool import errors
from sensorpool.config import __version__ as __version__
from sensorpool.errors import (
    CannotPoke,
    FailSensor,
    InfraFailure,
    KeyConflict,
    Refused,
    SensorFailed,
    SensorpoolError,
    SettingsError,
    SkipSensor,
    Unknown,
    Unreachable,
)

if TYPE_CHECKING:
    from sensorpool import aio, testing
    from sensorpool.canvas import wait_for
    from sensorpool.client.default import all_of, any_of, cancel, get, register, register_many, wait, wake
    from sensorpool.client.instance import Instance
    from sensorpool.client.pool import Pool
    from sensorpool.config.settings import Settings
    from sensorpool.model.states import Ending, State
    from sensorpool.model.values import Key, PokeReturnValue, Registration, Result
    from sensorpool.sensors.function import sensor

__all__ = [
    "CannotPoke",
    "Ending",
    "FailSensor",
    "InfraFailure",
    "Instance",
    "Key",
    "KeyConflict",
    "PokeReturnValue",
    "Pool",
    "Refused",
    "Registration",
    "Result",
    "SensorFailed",
    "SensorpoolError",
    "Settings",
    "SettingsError",
    "SkipSensor",
    "State",
    "Unknown",
    "Unreachable",
    "aio",
    "all_of",
    "any_of",
    "cancel",
    "errors",
    "get",
    "register",
    "register_many",
    "sensor",
    "testing",
    "wait",
    "wait_for",
    "wake",
]

_HOMES = {
    "client.default": ("all_of", "any_of", "cancel", "get", "register", "register_many", "wait", "wake"),
    "client.instance": ("Instance",),
    "client.pool": ("Pool",),
    "canvas": ("wait_for",),
    "config.settings": ("Settings",),
    "model.states": ("Ending", "State"),
    "model.values": ("Key", "PokeReturnValue", "Registration", "Result"),
    "sensors.function": ("sensor",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"sensorpool.{_HOME_OF[name]}"), name)
    if name in {"aio", "testing"}:
        return import_module(f"sensorpool.{name}")
    if name in {"app", "celery"}:
        return import_module("sensorpool.service.app").app
    raise AttributeError(f"module 'sensorpool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
