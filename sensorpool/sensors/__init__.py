"""Sensors that need no Airflow: a path, an HTTP answer, a row in a database, a moment.

The import of this package loads no sensor: each one is loaded, with the library that it needs, at its first use
(PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensorpool.sensors.http import HttpSensor
    from sensorpool.sensors.path import PathSensor
    from sensorpool.sensors.sql import SqlSensor
    from sensorpool.sensors.time import TimeSensor

__all__ = ["HttpSensor", "PathSensor", "SqlSensor", "TimeSensor"]

_HOMES = {"HttpSensor": "http", "PathSensor": "path", "SqlSensor": "sql", "TimeSensor": "time"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sensorpool.sensors' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"sensorpool.sensors.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
